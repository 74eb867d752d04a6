// The C interface of models in sessions of ONNX Runtime, for Python (serve/native/loop.py). Calls as in loop/api.hpp.
#include <cstdint>
#include <memory>

#include "loop/api.hpp"
#include "loop/loop.hpp"
#include "runtime/model.hpp"
#include "runtime/session_model.hpp"

using namespace dragoman;

namespace {

// Engines share the sessions, and have caches of their own.
struct SharedSessions : Model {
  explicit SharedSessions(const ModelConfig& config) : sessions(std::make_shared<Sessions>(config)) {}
  std::shared_ptr<StepModel> engine(int32_t slots) override { return std::make_shared<SessionModel>(sessions, slots); }

  const std::shared_ptr<const Sessions> sessions;
};

}  // namespace

// Opens the sessions. Python must have registered the operators before.
DRAGOMAN_API int32_t dragoman_model_open(const ModelConfig* config, Model** model) {
  return guarded([&] { *model = new SharedSessions(*config); });
}

// Closes the sessions when no engine uses them.
DRAGOMAN_API void dragoman_model_close(Model* model) { delete model; }

// Adds an engine to a loop, without starting it.
DRAGOMAN_API int32_t dragoman_loop_add_engine(Loop* loop, Model* model, int64_t slots) {
  return guarded([&] { loop->add_engine(model->engine(static_cast<int32_t>(slots))); });
}
