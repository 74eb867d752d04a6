// The sessions of a bundle with native graphs, which all engines share, opened by ONNX Runtime's C interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loop/mapped_memory.hpp"
#include "operators/encode.hpp"
#include "operators/step.hpp"
#include "ort/api.hpp"

namespace dragoman {

// A tensor of the file of weights, or the cache of one slot, as Python passes it (serve/native/loop.py).
struct TensorRecord {
  const char* name;
  int64_t type;  // as ONNX numbers the types of elements
  int64_t rank;
  int64_t shape[8];
  uint64_t offset_bytes;  // in the file of weights
};

struct TensorRecords {
  const TensorRecord* records;
  uint64_t count;
};

struct ModelConfig {
  const char *encoder, *decoder, *choose, *weights;  // paths
  // Weights that both graphs read; without them, each session would map its own.
  TensorRecords encoder_weights, decoder_weights;
  TensorRecords source_cache, target_cache;
  int64_t threads, vocabulary, alignment_heads;
  int64_t shortlists;  // the decoder takes candidates
};

struct TensorSpec {
  std::string name;
  ort::ElementType type;
  std::vector<int64_t> shape;

  size_t bytes() const;
};

// Returns the copy of ONNX Runtime that Python uses; throws std::runtime_error before Python registered the operators.
const ort::ApiBase* python_base();

// Returns the environment that all sessions of the process share. It lives as long as the process.
ort::Env* environment(const ort::Api& api);

// Returns the number of bytes; throws std::invalid_argument if the type is unknown.
size_t element_bytes(ort::ElementType type);

TensorSpec spec_of(const TensorRecord& record);
std::vector<TensorSpec> specs_of(const TensorRecords& records);

struct Sessions {
  // Throws std::runtime_error if ONNX Runtime rejects a graph, or std::invalid_argument.
  explicit Sessions(const ModelConfig& config);

  // Returns a tensor that wraps memory.
  ort::Owned<ort::Value> tensor(void* data, ort::ElementType type, const std::vector<int64_t>& shape) const;

  const ort::ApiBase* base;
  const ort::Api& api;
  ort::Owned<ort::MemoryInfo> memory;
  MappedMemory weights;
  std::vector<ort::Owned<ort::Value>> values;  // of the weights; like them, they outlive the sessions
  ort::Owned<ort::Session> encoder, decoder, choose;
  // The only kernels of encoder and decoder, which engines of one thread call themselves; null: sessions run.
  const EncodeKernel* encode_kernel = nullptr;
  const StepKernel* step_kernel = nullptr;
  std::vector<TensorSpec> source_cache, target_cache;  // of one slot
  int32_t vocabulary, alignment_heads;
  bool shortlists;

 private:
  NodeNames encoder_names() const;
  NodeNames decoder_names() const;
  ort::Owned<ort::Session> open(const char* path, const TensorRecords& shared_weights, int64_t threads);
};

// One run of a session with tensors in memory that the caller keeps.
class Binding {
 public:
  Binding(const Sessions& sessions, const ort::Owned<ort::Session>& session)
      : sessions_(sessions),
        session_(session.get()),
        binding_(sessions.api.own(sessions.api.create_io_binding, session_)) {}

  void input(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape) {
    sessions_.api.check(sessions_.api.bind_input(binding_.get(), name, sessions_.tensor(data, type, shape).get()));
  }
  void output(const char* name, void* data, ort::ElementType type, const std::vector<int64_t>& shape) {
    sessions_.api.check(sessions_.api.bind_output(binding_.get(), name, sessions_.tensor(data, type, shape).get()));
  }
  void run() { sessions_.api.check(sessions_.api.run_with_binding(session_, nullptr, binding_.get())); }

 private:
  const Sessions& sessions_;
  ort::Session* session_;
  ort::Owned<ort::IoBinding> binding_;
};

}  // namespace dragoman
