// ONNX Runtime's functions by name, loaded from its table, and its objects with owners.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>

#include "ort/abi.hpp"

namespace dragoman::ort {

struct Release;
template <class T>
using Owned = std::unique_ptr<T, Release>;

struct Api {
#define DRAGOMAN_MEMBER(slot, result, name, parameters) result(*name) parameters = nullptr;
  DRAGOMAN_ORT_FUNCTIONS(DRAGOMAN_MEMBER)
#undef DRAGOMAN_MEMBER

  // Throws std::runtime_error with ONNX Runtime's message if `status` is an error; releases it.
  void check(Status* status) const;

  // Calls a function and returns its result, which it writes to its last parameter.
  template <class... Parameters, class... Arguments>
  auto get(Status* (*function)(Parameters...), Arguments... arguments) const {
    using Last = std::tuple_element_t<sizeof...(Arguments), std::tuple<Parameters...>>;
    std::remove_pointer_t<Last> result{};
    check(function(arguments..., &result));
    return result;
  }

  // The same for a function that creates an object.
  template <class Function, class... Arguments>
  auto own(Function function, Arguments... arguments) const {
    auto* object = get(function, arguments...);
    return Owned<std::remove_pointer_t<decltype(object)>>(object, {this});
  }
};

// Deletes an object by the function of the table for its type.
struct Release {
  const Api* api;
  void operator()(CudaOptions* object) const { api->release_cuda_options(object); }
  void operator()(IoBinding* object) const { api->release_io_binding(object); }
  void operator()(MemoryInfo* object) const { api->release_memory_info(object); }
  void operator()(RunOptions* object) const { api->release_run_options(object); }
  void operator()(Session* object) const { api->release_session(object); }
  void operator()(SessionOptions* object) const { api->release_session_options(object); }
  void operator()(TensorInfo* object) const { api->release_tensor_info(object); }
  void operator()(TypeInfo* object) const { api->release_type_info(object); }
  void operator()(Value* object) const { api->release_value(object); }
};

// Returns the functions behind `base`, which stay valid. A process may load several copies of ONNX Runtime.
// Throws std::runtime_error if the version is unknown or a function is missing.
const Api& load(const ApiBase* base);

}  // namespace dragoman::ort
