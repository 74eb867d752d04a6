// Compares the kernels of every instruction set with obvious scalar code and with one another.
//
// Prints a digest of all that the kernels computed: machines compare it. Exits with 1 if a check failed.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attention_checks.hpp"
#include "choice_checks.hpp"
#include "product_checks.hpp"
#include "row_checks.hpp"

#ifdef DRAGOMAN_TEST_AVX_VNNI
namespace dragoman::avx_vnni {
extern const Kernels kKernels;
}
#endif

namespace testing {
namespace {

void test_registry() {
  for (const Kernels* kernels : dragoman::available_kernels())
    check(&dragoman::kernels_for(kernels->name) == kernels, std::string(kernels->name) + " by name");
  bool thrown = false;
  try {
    dragoman::kernels_for("sse1");
  } catch (const std::runtime_error& error) {
    thrown = std::string(error.what()).find("portable") != std::string::npos;
  }
  check(thrown, "an unknown instruction set is an error that names the known ones");
  setenv("DRAGOMAN_INSTRUCTIONS", "portable", 1);
  check(std::string(dragoman::chosen_kernels().name) == "portable", "the environment variable chooses");
  setenv("DRAGOMAN_INSTRUCTIONS", "", 1);
  check(&dragoman::chosen_kernels() == dragoman::available_kernels().back(), "an empty variable chooses nothing");
}

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all = dragoman::available_kernels();
#ifdef DRAGOMAN_TEST_AVX_VNNI
  if (std::string(all.back()->name) == "avx512") all.push_back(&dragoman::avx_vnni::kKernels);
#endif
  return all;
}

int run() {
  const std::vector<std::pair<const char*, void (*)(const Kernels&, Record&)>> tests = {
      {"products", test_products},         {"extreme products", test_extreme_products},
      {"rows alone", test_rows_alone},     {"epilogues", test_epilogues},
      {"activations", test_activations},   {"bad rows", test_bad_rows},
      {"norms", test_norms},               {"embeddings", test_embeddings},
      {"cache layout", test_cache_layout}, {"attention", test_attention},
      {"beyond", test_attention_beyond},   {"attention of NaN", test_attention_of_nan},
      {"denormals", test_denormals},       {"choices", test_choices},
      {"bad choices", test_bad_choices},   {"recurrent units", test_recurrent_units},
      {"extreme units", test_extreme_recurrent_units},
      {"pairs at the limit", test_pairs_at_the_limit},
  };
  test_registry();
  for (const auto& [title, test] : tests) {
    std::uint64_t portable = 0;
    for (const Kernels* kernels : all_kernels()) {
      Record record;
      test(*kernels, record);
      if (kernels == dragoman::available_kernels().front()) {
        portable = record.digest();
        std::printf("digest %s %016llx\n", title, static_cast<unsigned long long>(portable));
      }
      check(record.digest() == portable, std::string(kernels->name) + " " + title + ": other bits than portable");
    }
  }
  for (const Kernels* kernels : all_kernels()) std::printf("tested %s\n", kernels->name);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace testing

int main() { return testing::run(); }
