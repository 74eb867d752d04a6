#include "runtime/sessions.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <numeric>
#include <stdexcept>

#include "operators/register.hpp"

namespace dragoman {
namespace {

using OwnedOptions =
    std::unique_ptr<ort::SessionOptions, ort::Deleter<ort::SessionOptions, &ort::Api::release_session_options>>;

size_t element_bytes(ort::ElementType type) {
  switch (type) {
    case ort::ElementType::kInt8:
    case ort::ElementType::kUint8:
      return 1;
    case ort::ElementType::kFloat:
    case ort::ElementType::kInt32:
      return 4;
    case ort::ElementType::kInt64:
      return 8;
    default:
      throw std::invalid_argument("tensor: unknown type of its elements");
  }
}

size_t file_bytes(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) throw std::runtime_error(path + ": cannot be read");
  return static_cast<size_t>(status.st_size);
}

const ort::ApiBase* python_base() {
  const ort::ApiBase* base = registered_base();
  if (base == nullptr) throw std::runtime_error("ONNX Runtime: it has not registered the operators");
  return base;
}

// The environment that all sessions of the process share. It lives as long as the process.
ort::Env* environment(const ort::Api& api) {
  static ort::Env* const shared = [&] {
    ort::Env* made = nullptr;
    api.check(api.create_env(ort::LoggingLevel::kFatal, "dragoman", &made));
    return made;
  }();
  return shared;
}

}  // namespace

size_t TensorSpec::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), element_bytes(type),
                         [](size_t product, int64_t size) { return product * static_cast<size_t>(size); });
}

MappedMemory::MappedMemory(const std::string& path) : bytes_(file_bytes(path)), data_(nullptr) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::runtime_error(path + ": cannot be read");
  void* mapped = bytes_ > 0 ? mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  close(file);
  if (mapped == MAP_FAILED) throw std::runtime_error(path + ": cannot be mapped");
  data_ = static_cast<char*>(mapped);
}

MappedMemory::MappedMemory(size_t bytes) : bytes_(bytes), data_(nullptr) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
  madvise(mapped, bytes, MADV_NOHUGEPAGE);  // one filled position would take 2 MB
#endif
  data_ = static_cast<char*>(mapped);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Sessions::Sessions(const SessionsConfig& config)
    : config_(config),
      base_(python_base()),
      api_(ort::load(base_)),
      memory_(nullptr, {&api_}),
      weights_(config.weights),
      encoder_(nullptr, {&api_}),
      decoder_(nullptr, {&api_}),
      choose_(nullptr, {&api_}) {
  ort::MemoryInfo* memory = nullptr;
  api_.check(api_.create_cpu_memory_info(ort::AllocatorType::kArena, ort::MemType::kDefault, &memory));
  memory_.reset(memory);
  encoder_ = open(config.encoder, config.encoder_weights);
  decoder_ = open(config.decoder, config.decoder_weights);
  choose_ = open(config.choose, {});
}

ort::OwnedValue Sessions::tensor(void* data, ort::ElementType type, const std::vector<int64_t>& shape) const {
  const TensorSpec spec{"", type, shape, 0};
  ort::Value* value = nullptr;
  api_.check(api_.create_tensor_with_data(memory_.get(), data, spec.bytes(), shape.data(), shape.size(), type, &value));
  return ort::OwnedValue(value, {&api_});
}

Sessions::Session Sessions::open(const std::string& path, const std::vector<TensorSpec>& weights) {
  ort::SessionOptions* made = nullptr;
  api_.check(api_.create_session_options(&made));
  const OwnedOptions options(made, {&api_});
  api_.check(api_.set_intra_op_num_threads(made, config_.threads));
  api_.check(api_.set_inter_op_num_threads(made, 1));
  api_.check(api_.set_session_log_severity_level(made, static_cast<int>(ort::LoggingLevel::kFatal)));
  api_.check(api_.add_session_config_entry(made, kThreadsEntry, std::to_string(config_.threads).c_str()));
  // A spinning thread would take CPU time from other engines and from the event loop.
  api_.check(api_.add_session_config_entry(made, "session.intra_op.allow_spinning", "0"));
  // All sessions share one arena, and weights leave no holes in it.
  api_.check(api_.add_session_config_entry(made, "session.use_env_allocators", "1"));
  api_.check(api_.add_session_config_entry(made, "session.use_device_allocator_for_initializers", "1"));
  add_operators(made, base_);
  for (const TensorSpec& weight : weights) {
    if (weight.offset_bytes > weights_.bytes() || weight.bytes() > weights_.bytes() - weight.offset_bytes)
      throw std::invalid_argument(weight.name + ": not in the file of weights");
    values_.push_back(tensor(weights_.data() + weight.offset_bytes, weight.type, weight.shape));
    api_.check(api_.add_initializer(made, weight.name.c_str(), values_.back().get()));
  }
  ort::Session* session = nullptr;
  api_.check(api_.create_session(environment(api_), path.c_str(), made, &session));
  return Session(session, {&api_});
}

Binding::Binding(const Sessions& sessions, ort::Session* session)
    : sessions_(sessions), session_(session), binding_(nullptr, {&sessions.api()}) {
  ort::IoBinding* made = nullptr;
  sessions.api().check(sessions.api().create_io_binding(session, &made));
  binding_.reset(made);
}

void Binding::input(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape) {
  const ort::OwnedValue value = sessions_.tensor(data, type, shape);
  sessions_.api().check(sessions_.api().bind_input(binding_.get(), name, value.get()));
}

void Binding::output(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape) {
  const ort::OwnedValue value = sessions_.tensor(data, type, shape);
  sessions_.api().check(sessions_.api().bind_output(binding_.get(), name, value.get()));
}

void Binding::run() { sessions_.api().check(sessions_.api().run_with_binding(session_, nullptr, binding_.get())); }

}  // namespace dragoman
