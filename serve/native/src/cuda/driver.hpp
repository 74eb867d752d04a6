// The functions of the NVIDIA driver's interface that this library calls, loaded by name: no CUDA toolkit is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dragoman::cuda {

struct Context;
struct Stream;
struct Event;
using Address = uint64_t;  // in the memory of a device

enum class Result : int { kSuccess = 0, kOutOfMemory = 2 };
constexpr unsigned kNonBlocking = 1;  // a stream that does not wait for the default stream
constexpr unsigned kUntimed = 2;      // an event without a time
constexpr unsigned kDeviceMemory = 2;

// CUDA_MEMCPY3D: a box of bytes, lines and groups in two memories. Offsets and host memory are not used.
struct BoxCopy {
  struct Side {
    size_t first[4] = {};
    unsigned memory_type = kDeviceMemory;
    void* host = nullptr;
    Address device;
    void* unused[2] = {};
    size_t pitch, height;
  };

  Side from, to;
  size_t bytes, lines, groups;
};
static_assert(sizeof(BoxCopy) == 200);

// F(name in C++, name in the driver, types of the parameters); cuda.h documents them.
#define DRAGOMAN_DRIVER_FUNCTIONS(F)                                            \
  F(init, cuInit, (unsigned))                                                   \
  F(get_error_name, cuGetErrorName, (Result, const char**))                     \
  F(get_device, cuDeviceGet, (int*, int))                                       \
  F(retain_context, cuDevicePrimaryCtxRetain, (Context**, int))                 \
  F(release_context, cuDevicePrimaryCtxRelease_v2, (int))                       \
  F(set_context, cuCtxSetCurrent, (Context*))                                   \
  F(create_stream, cuStreamCreate, (Stream**, unsigned))                        \
  F(destroy_stream, cuStreamDestroy_v2, (Stream*))                              \
  F(synchronize_stream, cuStreamSynchronize, (Stream*))                         \
  F(create_event, cuEventCreate, (Event**, unsigned))                           \
  F(destroy_event, cuEventDestroy_v2, (Event*))                                 \
  F(record_event, cuEventRecord, (Event*, Stream*))                             \
  F(synchronize_event, cuEventSynchronize, (Event*))                            \
  F(allocate, cuMemAlloc_v2, (Address*, size_t))                                \
  F(release, cuMemFree_v2, (Address))                                           \
  F(allocate_pinned, cuMemHostAlloc, (void**, size_t, unsigned))                \
  F(release_pinned, cuMemFreeHost, (void*))                                     \
  F(upload, cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, Stream*))      \
  F(download, cuMemcpyDtoHAsync_v2, (void*, Address, size_t, Stream*))          \
  F(copy, cuMemcpyDtoDAsync_v2, (Address, Address, size_t, Stream*))            \
  F(copy_box, cuMemcpy3DAsync_v2, (const BoxCopy*, Stream*))                    \
  F(fill, cuMemsetD8Async, (Address, unsigned char, size_t, Stream*))

struct Driver {
#define DRAGOMAN_MEMBER(name, symbol, parameters) Result(*name) parameters = nullptr;
  DRAGOMAN_DRIVER_FUNCTIONS(DRAGOMAN_MEMBER)
#undef DRAGOMAN_MEMBER

  // Throws OutOfMemory or std::runtime_error, which names the call and the driver's error, unless the call succeeded.
  void check(Result result, const char* call) const;
};

// Loads the driver, which stays loaded. Throws std::runtime_error that names the library or the missing function.
Driver load_driver(const std::string& library);

}  // namespace dragoman::cuda
