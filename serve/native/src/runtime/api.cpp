// The C interface of models in sessions of ONNX Runtime, for Python (serve/native/loop.py). Calls as in loop/api.hpp.
#include <cstdint>
#include <memory>

#include "loop/api.hpp"
#include "loop/loop.hpp"
#include "runtime/session_model.hpp"

using namespace dragoman;
using Model = std::shared_ptr<const Sessions>;

// Opens the sessions. Python must have registered the operators before.
DRAGOMAN_API int32_t dragoman_model_open(const ModelConfig* config, Model** model) {
  return guarded([&] { *model = std::make_unique<Model>(std::make_shared<Sessions>(*config)).release(); });
}

// Closes the sessions when no engine uses them.
DRAGOMAN_API void dragoman_model_close(Model* model) { delete model; }

// Adds an engine with caches of its own to a loop, without starting it.
DRAGOMAN_API int32_t dragoman_loop_add_engine(Loop* loop, Model* model, int64_t slots) {
  return guarded([&] { loop->add_engine(std::make_shared<SessionModel>(*model, static_cast<int32_t>(slots))); });
}
