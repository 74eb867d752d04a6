// The instruction sets of this build, and those that this processor has.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace dragoman {

namespace portable { extern const Kernels kKernels; }
#if defined(__x86_64__)
namespace avx2 { extern const Kernels kKernels; }
namespace avx_vnni { extern const Kernels kKernels; }
namespace avx512 { extern const Kernels kKernels; }
namespace amx { extern const Kernels kKernels; }
#elif defined(__aarch64__)
namespace neon { extern const Kernels kKernels; }
#endif

namespace {

#if defined(__x86_64__)

// What the processor tells about itself in a leaf; zeros if it lacks the leaf.
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
  Leaf(unsigned number, unsigned part) { __get_cpuid_count(number, part, &a, &b, &c, &d); }
};

template <class... Places>
constexpr bool has(unsigned bits, Places... places) {
  return (... && ((bits >> places & 1) != 0));
}

// The registers that the operating system saves (XCR0).
unsigned saved_registers() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Linux saves the tiles of a process that requests it.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

void add_processor_sets(std::vector<const Kernels*>& sets) {
  const Leaf basic(1, 0), extended(7, 0), more(7, 1);
  if (!has(basic.c, 12, 27, 28) || !has(extended.b, 5)) return;  // FMA, XSAVE, AVX; AVX2
  const unsigned saved = saved_registers();
  if (!has(saved, 1, 2)) return;
  sets.push_back(&avx2::kKernels);
  if (has(more.a, 4)) sets.push_back(&avx_vnni::kKernels);
  const bool wide = has(extended.b, 16, 17, 30, 31) && has(extended.c, 11);  // F, DQ, BW, VL; VNNI
  if (!wide || !has(saved, 5, 6, 7)) return;
  sets.push_back(&avx512::kKernels);
  if (has(extended.d, 24, 25) && has(saved, 17, 18) && may_use_tiles()) sets.push_back(&amx::kKernels);
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
