// The registration of the operators for sessions.
#pragma once

#include "ort/api.hpp"

namespace dragoman {

// The number of intra-op threads of a session: an entry of its configuration, because kernels cannot ask for it.
constexpr const char* kThreadsEntry = "dragoman.threads";

// Lets the sessions of these options run the operators. Throws if this copy of ONNX Runtime cannot.
void add_operators(ort::SessionOptions* options, const ort::ApiBase* base);

// The copy of ONNX Runtime that registered the operators last: Python's. A nullptr: none did.
const ort::ApiBase* registered_base();

}  // namespace dragoman
