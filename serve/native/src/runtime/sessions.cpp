#include "runtime/sessions.hpp"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "operators/operator.hpp"
#include "operators/register.hpp"

namespace dragoman {

size_t element_bytes(ort::ElementType type) {
  using Type = ort::ElementType;
  if (type == Type::kInt8 || type == Type::kUint8) return 1;
  if (type == Type::kFloat16) return 2;
  if (type == Type::kFloat || type == Type::kInt32) return 4;
  if (type == Type::kInt64) return 8;
  throw std::invalid_argument("tensor: unknown type of its elements");
}

TensorSpec spec_of(const TensorRecord& record) {
  if (record.rank < 0 || record.rank > 8) throw std::invalid_argument("tensor: too many dimensions");
  return {record.name, static_cast<ort::ElementType>(record.type), {record.shape, record.shape + record.rank}};
}

std::vector<TensorSpec> specs_of(const TensorRecords& records) {
  std::vector<TensorSpec> specs;
  for (uint64_t index = 0; index < records.count; ++index) specs.push_back(spec_of(records.records[index]));
  return specs;
}

const ort::ApiBase* python_base() {
  const ort::ApiBase* base = registered_base();
  if (base == nullptr) throw std::runtime_error("ONNX Runtime: it has not registered the operators");
  return base;
}

ort::Env* environment(const ort::Api& api) {
  static ort::Env* const shared = api.get(api.create_env, ort::LoggingLevel::kFatal, "dragoman");
  return shared;
}

namespace {

// Returns the kernel that this thread has created last if it computes its graph alone and one thread runs it: names of a
// graph are unique, so a node that has the names of all inputs and outputs of the graph takes and gives these.
template <class Kernel>
const Kernel* only_kernel(const NodeNames& graph, int64_t threads) {
  const Kernel* kernel = std::exchange(last_created<Kernel>(), nullptr);
  const bool only = kernel != nullptr && kernel->names().inputs == graph.inputs && kernel->names().outputs == graph.outputs;
  return only && threads == 1 ? kernel : nullptr;
}

// Forgets the kernels of other sessions of this thread, which may be gone.
const ort::ApiBase* base_of_new_sessions() {
  last_created<EncodeKernel>() = nullptr;
  last_created<StepKernel>() = nullptr;
  return python_base();
}

}  // namespace

size_t TensorSpec::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), element_bytes(type),
                         [](size_t product, int64_t size) { return product * static_cast<size_t>(size); });
}

Sessions::Sessions(const ModelConfig& config)
    : base(base_of_new_sessions()),
      api(ort::load(base)),
      memory(api.own(api.create_cpu_memory_info, ort::AllocatorType::kArena, ort::MemType::kDefault)),
      weights(std::string(config.weights)),
      encoder(open(config.encoder, config.encoder_weights, config.threads)),
      decoder(open(config.decoder, config.decoder_weights, config.threads)),
      choose(open(config.choose, {}, config.threads)),
      source_cache(specs_of(config.source_cache)),
      target_cache(specs_of(config.target_cache)),
      vocabulary(static_cast<int32_t>(config.vocabulary)),
      alignment_heads(static_cast<int32_t>(config.alignment_heads)),
      shortlists(config.shortlists != 0) {
  encode_kernel = only_kernel<EncodeKernel>(encoder_names(), config.threads);
  step_kernel = only_kernel<StepKernel>(decoder_names(), config.threads);
}

NodeNames Sessions::encoder_names() const {
  NodeNames names{{"source_ids", "source_lengths", "source_slots"}, {}};
  for (const TensorSpec& spec : source_cache) {
    names.inputs.push_back(spec.name);
    names.outputs.push_back("present_" + spec.name);
  }
  return names;
}

NodeNames Sessions::decoder_names() const {
  NodeNames names{{"token_ids", "positions", "target_slots", "source_slots", "source_lengths", "scored_rows", "best_count",
                   "aligned"},
                  {"logits", "log_sums", "best_scores", "best_ids", "alignments"}};
  if (shortlists) names.inputs.insert(names.inputs.end(), {"candidate_ids", "candidate_ranges"});
  for (const TensorSpec& spec : target_cache) {
    names.inputs.push_back(spec.name);
    names.outputs.push_back("present_" + spec.name);
  }
  for (const TensorSpec& spec : source_cache) names.inputs.push_back(spec.name);
  return names;
}

ort::Owned<ort::Value> Sessions::tensor(void* data, ort::ElementType type, const std::vector<int64_t>& shape) const {
  const size_t bytes = TensorSpec{"", type, shape}.bytes();
  return api.own(api.create_tensor_with_data, memory.get(), data, bytes, shape.data(), shape.size(), type);
}

ort::Owned<ort::Session> Sessions::open(const char* path, const TensorRecords& shared_weights, int64_t threads) {
  const auto owned = api.own(api.create_session_options);
  ort::SessionOptions* options = owned.get();
  const auto configure = [&](const char* key, const std::string& value) {
    api.check(api.add_session_config_entry(options, key, value.c_str()));
  };
  api.check(api.set_intra_op_num_threads(options, static_cast<int>(threads)));
  api.check(api.set_inter_op_num_threads(options, 1));
  api.check(api.set_session_log_severity_level(options, static_cast<int>(ort::LoggingLevel::kFatal)));
  configure(kThreadsEntry, std::to_string(threads));
  // A spinning thread would take CPU time from other engines and from the event loop.
  configure("session.intra_op.allow_spinning", "0");
  // All sessions share one arena, and weights leave no holes in it.
  configure("session.use_env_allocators", "1");
  configure("session.use_device_allocator_for_initializers", "1");
  add_operators(options, base);
  for (uint64_t index = 0; index < shared_weights.count; ++index) {
    const TensorRecord& record = shared_weights.records[index];
    const TensorSpec spec = spec_of(record);
    if (record.offset_bytes > weights.bytes() || spec.bytes() > weights.bytes() - record.offset_bytes)
      throw std::invalid_argument(spec.name + ": not in the file of weights");
    values.push_back(tensor(weights.data() + record.offset_bytes, spec.type, spec.shape));
    api.check(api.add_initializer(options, record.name, values.back().get()));
  }
  return api.own(api.create_session, environment(api), path, options);
}

}  // namespace dragoman
