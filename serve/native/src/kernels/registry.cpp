// The instruction sets of this build, and those that this processor has.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace dragoman {

namespace portable { extern const Kernels kKernels; }
#if defined(__x86_64__)
namespace avx2 { extern const Kernels kKernels; }
namespace avx_vnni { extern const Kernels kKernels; }
namespace avx512 { extern const Kernels kKernels; }
#elif defined(__aarch64__)
namespace neon { extern const Kernels kKernels; }
#endif

namespace {

#if defined(__x86_64__)

constexpr bool has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }
constexpr unsigned bit(unsigned n) { return 1u << n; }

// The registers that the operating system saves (XCR0).
unsigned saved_registers() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

void add_processor_sets(std::vector<const Kernels*>& sets) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned fma = bit(12), xsave = bit(27), avx = bit(28);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has(c, fma | xsave | avx)) return;
  const unsigned saved = saved_registers();
  const unsigned avx2 = bit(5);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || !has(b, avx2) || !has(saved, 0x06)) return;
  const unsigned avx512 = bit(16) | bit(17) | bit(30) | bit(31);  // F, DQ, BW, VL
  const bool wide = has(b, avx512) && has(c, bit(11)) && has(saved, 0xe6);
  const bool vnni = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && has(a, bit(4));
  sets.push_back(&avx2::kKernels);
  if (vnni) sets.push_back(&avx_vnni::kKernels);
  if (wide) sets.push_back(&avx512::kKernels);
}

#elif defined(__aarch64__)

void add_processor_sets(std::vector<const Kernels*>& sets) {
#if defined(__linux__)
  const unsigned long dot_product = 1ul << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & dot_product) == 0) return;
#endif
  sets.push_back(&neon::kKernels);  // every Apple processor has it
}

#else

void add_processor_sets(std::vector<const Kernels*>&) {}

#endif

}  // namespace

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> sets{&portable::kKernels};
  add_processor_sets(sets);
  return sets;
}

const Kernels& kernels_for(std::string_view name) {
  std::string names;
  for (const Kernels* kernels : available_kernels()) {
    if (kernels->name == name) return *kernels;
    names += names.empty() ? "" : ", ";
    names += kernels->name;
  }
  throw std::runtime_error("DRAGOMAN_INSTRUCTIONS: expected one of " + names + ", got " + std::string(name));
}

const Kernels& chosen_kernels() {
  const char* name = std::getenv("DRAGOMAN_INSTRUCTIONS");
  if (name != nullptr && *name != '\0') return kernels_for(name);
  return *available_kernels().back();
}

}  // namespace dragoman
