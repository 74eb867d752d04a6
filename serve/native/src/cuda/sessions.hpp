// The sessions of one engine on a device, and their bindings.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda/config.hpp"
#include "cuda/device.hpp"
#include "ort/api.hpp"

namespace dragoman::cuda {

using ort::ElementType;
using Shape = std::vector<int64_t>;

// A session and the names of its inputs: a graph may lack inputs that its model does not use.
struct DeviceSession {
  ort::Owned<ort::Session> session;
  std::set<std::string> inputs;
};

struct DeviceSessions {
  // Opens the graphs on a GPU, or for tests on the CPU. Throws std::runtime_error if ONNX Runtime rejects a graph.
  DeviceSessions(const DeviceConfig& config, int gpu, const Device& device, int64_t arena_bytes);

  const ort::Api& api;
  const bool on_gpu;
  ort::Owned<ort::MemoryInfo> host_memory, device_memory;
  ort::Owned<ort::RunOptions> plain_run;
  DeviceSession encoder, decoder, choose;

 private:
  DeviceSession open(const char* path, const DeviceConfig& config, int gpu, const Device& device, int64_t arena_bytes,
                     bool captured) const;
  void append_cuda(ort::SessionOptions* options, int gpu, const Device& device, int64_t arena_bytes,
                   bool captured) const;
};

// Returns options of runs that do not wait for the device; with a positive `graph_id`, they capture a CUDA graph and
// replay it afterwards. All runs with an id must have the same shapes and addresses.
ort::Owned<ort::RunOptions> run_options(const ort::Api& api, bool waits, int64_t graph_id);

// One run of a session with tensors in memory that the caller keeps.
class DeviceBinding {
 public:
  DeviceBinding(const DeviceSessions& sessions, const DeviceSession& session);

  // Binds device memory, unless the graph lacks the input.
  void input(const std::string& name, const void* data, ElementType type, const Shape& shape);
  // Binds a number in host memory, which must not change or move.
  void input_number(const std::string& name, const int64_t* number);
  void output(const std::string& name, void* data, ElementType type, const Shape& shape);
  void run(const ort::RunOptions* options);
  void run() { run(sessions_.plain_run.get()); }

 private:
  ort::Owned<ort::Value> tensor(const ort::MemoryInfo* memory, const void* data, ElementType type,
                                const Shape& shape) const;

  const DeviceSessions& sessions_;
  const DeviceSession& session_;
  ort::Owned<ort::IoBinding> binding_;
};

}  // namespace dragoman::cuda
