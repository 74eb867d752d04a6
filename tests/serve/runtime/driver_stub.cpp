// An NVIDIA driver whose device is the host: it counts the memory of the device, and fails on demand.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

using Result = int;
using Address = uint64_t;

namespace {

std::mutex mutex;
std::map<Address, size_t> taken;
constexpr Result kInvalidValue = 1, kOutOfMemory = 2;
constexpr Result kLost = 719;

}  // namespace

#define DRIVER extern "C"

extern "C" {
uint64_t stub_bytes = 0, stub_limit = UINT64_MAX;
char stub_failing[64] = "";  // the function that fails
}

#define FAIL_ON_DEMAND \
  if (std::strcmp(stub_failing, __func__) == 0) return kLost

DRIVER Result cuInit(unsigned) { FAIL_ON_DEMAND; return 0; }

DRIVER Result cuGetErrorName(Result result, const char** name) {
  *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_LAUNCH_FAILED";
  return 0;
}

DRIVER Result cuDeviceGet(int* device, int number) { FAIL_ON_DEMAND; *device = number; return 0; }
DRIVER Result cuDevicePrimaryCtxRetain(void** context, int) { FAIL_ON_DEMAND; *context = &taken; return 0; }
DRIVER Result cuDevicePrimaryCtxRelease_v2(int) { return 0; }
DRIVER Result cuCtxSetCurrent(void*) { FAIL_ON_DEMAND; return 0; }
DRIVER Result cuStreamCreate(void** stream, unsigned) { FAIL_ON_DEMAND; *stream = &mutex; return 0; }
DRIVER Result cuStreamDestroy_v2(void*) { return 0; }
DRIVER Result cuStreamSynchronize(void*) { FAIL_ON_DEMAND; return 0; }

DRIVER Result cuEventCreate(void** event, unsigned) { FAIL_ON_DEMAND; *event = &taken; return 0; }
DRIVER Result cuEventDestroy_v2(void*) { return 0; }
DRIVER Result cuEventRecord(void*, void*) { FAIL_ON_DEMAND; return 0; }
DRIVER Result cuEventSynchronize(void*) { FAIL_ON_DEMAND; return 0; }

DRIVER Result cuMemAlloc_v2(Address* memory, size_t bytes) {
  FAIL_ON_DEMAND;
  const std::lock_guard<std::mutex> lock(mutex);
  if (stub_bytes + bytes > stub_limit) return kOutOfMemory;
  *memory = reinterpret_cast<Address>(std::malloc(bytes));
  std::memset(reinterpret_cast<void*>(*memory), 0xFF, bytes);  // NaN, as other processes may leave it
  taken[*memory] = bytes;
  stub_bytes += bytes;
  return 0;
}

DRIVER Result cuMemFree_v2(Address memory) {
  const std::lock_guard<std::mutex> lock(mutex);
  stub_bytes -= taken.at(memory);
  taken.erase(memory);
  std::free(reinterpret_cast<void*>(memory));
  return 0;
}

DRIVER Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  FAIL_ON_DEMAND;
  *memory = std::malloc(bytes);
  return 0;
}

DRIVER Result cuMemFreeHost(void* memory) { std::free(memory); return 0; }

DRIVER Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void*) {
  FAIL_ON_DEMAND;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}

DRIVER Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void*) {
  FAIL_ON_DEMAND;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}

DRIVER Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void*) {
  FAIL_ON_DEMAND;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}

// CUDA_MEMCPY3D.
struct Side { size_t first[4]; unsigned type; char* host; char* device; void* unused[2]; size_t pitch, height; };
struct Box { Side from, to; size_t bytes, lines, groups; };

DRIVER Result cuMemcpy3DAsync_v2(const Box* box, void*) {
  FAIL_ON_DEMAND;
  for (const Side& side : {box->from, box->to})
    if (side.type != 2 || side.pitch < box->bytes || side.height < box->lines) return kInvalidValue;
  for (size_t group = 0; group < box->groups; ++group)
    for (size_t line = 0; line < box->lines; ++line) {
      const auto at = [&](const Side& side) { return side.device + (group * side.height + line) * side.pitch; };
      std::memcpy(at(box->to), at(box->from), box->bytes);
    }
  return 0;
}

DRIVER Result cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, void*) {
  FAIL_ON_DEMAND;
  std::memset(reinterpret_cast<void*>(to), byte, bytes);
  return 0;
}
