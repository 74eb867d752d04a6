#include "cuda/sessions.hpp"

#include <numeric>
#include <utility>

#include "runtime/sessions.hpp"

namespace dragoman::cuda {
namespace {

// Only flash attention and memory-efficient attention: by default ONNX Runtime chooses by shape, so that the bits of a
// row could depend on the number of rows.
constexpr const char* kPinnedAttention = "3";
// ONNX Runtime fuses Add and LayerNormalization into an operator that is ten times slower on the CPU.
constexpr const char* kSlowOnCpu = "SkipLayerNormFusion";

}  // namespace

DeviceSessions::DeviceSessions(const DeviceConfig& config, int gpu, const Device& device, int64_t arena_bytes)
    : api(ort::load(python_base())),
      on_gpu(config.gpus != kNoGpu),
      host_memory(api.own(api.create_cpu_memory_info, ort::AllocatorType::kArena, ort::MemType::kDefault)),
      device_memory(on_gpu ? api.own(api.create_memory_info, "Cuda", ort::AllocatorType::kDevice, gpu,
                                     ort::MemType::kDefault)
                           : api.own(api.create_cpu_memory_info, ort::AllocatorType::kArena, ort::MemType::kDefault)),
      plain_run(run_options(api, false, 0)),
      encoder(open(config.encoder, config, gpu, device, arena_bytes, false)),
      decoder(open(config.decoder, config, gpu, device, arena_bytes, config.captured != 0)),
      choose(open(config.choose, config, gpu, device, arena_bytes, false)) {}

DeviceSession DeviceSessions::open(const char* path, const DeviceConfig& config, int gpu, const Device& device,
                                   int64_t arena_bytes, bool captured) const {
  const auto owned = api.own(api.create_session_options);
  ort::SessionOptions* options = owned.get();
  api.check(api.set_intra_op_num_threads(options, 1));
  api.check(api.set_inter_op_num_threads(options, 1));
  api.check(api.set_session_log_severity_level(options, static_cast<int>(ort::LoggingLevel::kFatal)));
  if (on_gpu) {
    append_cuda(options, gpu, device, arena_bytes, captured);
  } else {
    api.check(api.add_session_config_entry(options, "optimization.disable_specified_optimizers", kSlowOnCpu));
  }
  DeviceSession opened{api.own(api.create_session, environment(api), path, options), {}};
  ort::Allocator* allocator = api.get(api.get_default_allocator);
  const size_t count = api.get(api.get_input_count, opened.session.get());
  for (size_t index = 0; index < count; ++index) {
    char* name = api.get(api.get_input_name, opened.session.get(), index, allocator);
    opened.inputs.insert(name);
    api.check(api.allocator_free(allocator, name));
  }
  return opened;
}

void DeviceSessions::append_cuda(ort::SessionOptions* options, int gpu, const Device& device, int64_t arena_bytes,
                                 bool captured) const {
  const auto cuda = api.own(api.create_cuda_options);
  std::vector<std::pair<std::string, std::string>> entries{
      {"device_id", std::to_string(gpu)},
      // Growth by powers of two would take up to twice the memory.
      {"arena_extend_strategy", "kSameAsRequested"},
      {"enable_cuda_graph", captured ? "1" : "0"},
      {"sdpa_kernel", kPinnedAttention},
      {"use_tf32", "0"},
  };
  if (arena_bytes > 0) entries.emplace_back("gpu_mem_limit", std::to_string(arena_bytes));
  std::vector<const char*> keys, values;
  for (const auto& [key, value] : entries) {
    keys.push_back(key.c_str());
    values.push_back(value.c_str());
  }
  api.check(api.update_cuda_options(cuda.get(), keys.data(), values.data(), keys.size()));
  api.check(api.update_cuda_option_value(cuda.get(), "user_compute_stream", device.stream()));
  api.check(api.append_cuda(options, cuda.get()));
}

ort::Owned<ort::RunOptions> run_options(const ort::Api& api, bool waits, int64_t graph_id) {
  auto options = api.own(api.create_run_options);
  const auto configure = [&](const char* key, const std::string& value) {
    api.check(api.add_run_config_entry(options.get(), key, value.c_str()));
  };
  if (!waits) configure("disable_synchronize_execution_providers", "1");
  if (graph_id > 0) configure("gpu_graph_id", std::to_string(graph_id));
  return options;
}

DeviceBinding::DeviceBinding(const DeviceSessions& sessions, const DeviceSession& session)
    : sessions_(sessions),
      session_(session),
      binding_(sessions.api.own(sessions.api.create_io_binding, session.session.get())) {}

void DeviceBinding::input(const std::string& name, const void* data, ElementType type, const Shape& shape) {
  if (session_.inputs.count(name) == 0) return;
  const auto value = tensor(sessions_.device_memory.get(), data, type, shape);
  sessions_.api.check(sessions_.api.bind_input(binding_.get(), name.c_str(), value.get()));
}

void DeviceBinding::input_number(const std::string& name, const int64_t* number) {
  const auto value = tensor(sessions_.host_memory.get(), number, ElementType::kInt64, {1});
  sessions_.api.check(sessions_.api.bind_input(binding_.get(), name.c_str(), value.get()));
}

void DeviceBinding::output(const std::string& name, void* data, ElementType type, const Shape& shape) {
  const auto value = tensor(sessions_.device_memory.get(), data, type, shape);
  sessions_.api.check(sessions_.api.bind_output(binding_.get(), name.c_str(), value.get()));
}

void DeviceBinding::run(const ort::RunOptions* options) {
  sessions_.api.check(sessions_.api.run_with_binding(session_.session.get(), options, binding_.get()));
}

ort::Owned<ort::Value> DeviceBinding::tensor(const ort::MemoryInfo* memory, const void* data, ElementType type,
                                             const Shape& shape) const {
  const size_t bytes = TensorSpec{"", type, shape}.bytes();
  return sessions_.api.own(sessions_.api.create_tensor_with_data, memory, const_cast<void*>(data), bytes, shape.data(),
                           shape.size(), type);  // ONNX Runtime does not write to inputs
}

}  // namespace dragoman::cuda
