// Fuzzes the reader of submissions with libFuzzer: the loop refuses the bytes, or each of their sequences ends once.
//
// A model without weights translates what the loop accepts, so that hostile numbers also reach the search.
#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "../tests/serve/native/loop/fake_model.hpp"
#include "loop/loop.hpp"

namespace {

using namespace dragoman;

constexpr int64_t kRows = 8;
constexpr int32_t kMaxTokens = 60, kMaxSteps = 20'000;  // of at most 30 sequences in 4,096 bytes

// Returns the ended sequences in the records of the loop.
size_t count_ends(const Records& records) {
  size_t ends = 0, at = 0;
  while (at < records.size()) {
    uint32_t kind = 0, count = 0;
    std::memcpy(&kind, records.data() + at, sizeof kind);
    std::memcpy(&count, records.data() + at + 4, sizeof count);
    at += 16;
    if (kind == static_cast<uint32_t>(RecordKind::kToken)) at += 8;
    if (kind == static_cast<uint32_t>(RecordKind::kProblem)) at += (count + 7) / 8 * 8;
    if (kind != static_cast<uint32_t>(RecordKind::kEnd)) continue;
    ++ends;
    for (at += 48; count > 0; --count) {
      uint32_t sizes[4];  // the reason, target tokens, scores of tokens, source tokens of alignments
      std::memcpy(sizes, records.data() + at + 16, sizeof sizes);
      at += 32 + 8 * size_t{sizes[1]} + (4 * size_t{sizes[2]} + 7) / 8 * 8;
      at += (4 * size_t{sizes[1]} * sizes[3] + 7) / 8 * 8;
    }
  }
  if (at != records.size()) std::abort();
  return ends;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const int descriptor = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const LoopConfig config{kRows, 1, 40, 900, kBegin, kEnd, kVocabulary, kMaxTokens, kMaxTokens, 1, descriptor,
                          {2, {0.001, 0.1}}, {2, {1, 4}}, nullptr};
  Loop loop(config, {4, 6, 7, 11}, [] { return 1.0; });
  loop.add_engine(std::make_shared<FakeModel>(static_cast<int32_t>(kRows), true));
  size_t ends = 0;
  try {
    loop.submit(bytes, size);
    const auto accepted = static_cast<size_t>(loop.scheduler().load().waiting);
    for (int32_t steps = 0; loop.scheduler().load().waiting + loop.scheduler().load().running > 0; ++steps) {
      if (steps == kMaxSteps) std::abort();
      loop.engine(0).step();
      ends += count_ends(loop.completions().take(false));
    }
    ends += count_ends(loop.completions().take(false));
    if (ends != accepted) std::abort();
  } catch (const std::invalid_argument&) {
    // The documented refusal; another exception ends the program.
  }
  loop.completions().close();
  return 0;
}
