// ONNX Runtime's functions by name, loaded from its table and checked, and its objects with owners.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "ort/abi.hpp"

namespace dragoman::ort {

struct Api {
#define DRAGOMAN_MEMBER(slot, result, name, parameters) result(*name) parameters = nullptr;
  DRAGOMAN_ORT_FUNCTIONS(DRAGOMAN_MEMBER)
#undef DRAGOMAN_MEMBER

  // Throws std::runtime_error with ONNX Runtime's message if `status` is an error; releases it.
  void check(Status* status) const;
};

// Returns the functions behind `base`, which stay valid. A process may load several copies of ONNX Runtime.
// Throws std::runtime_error if the version is unknown or the functions do not behave as declared.
const Api& load(const ApiBase* base);

// Deletes an object by the function of the table that is named by a member of `Api`.
template <class T, void (*Api::*release)(T*)>
struct Deleter {
  const Api* api;
  void operator()(T* object) const { (api->*release)(object); }
};

using OwnedTensorInfo = std::unique_ptr<TensorInfo, Deleter<TensorInfo, &Api::release_tensor_info>>;
using OwnedTypeInfo = std::unique_ptr<TypeInfo, Deleter<TypeInfo, &Api::release_type_info>>;
using OwnedMemoryInfo = std::unique_ptr<MemoryInfo, Deleter<MemoryInfo, &Api::release_memory_info>>;
using OwnedValue = std::unique_ptr<Value, Deleter<Value, &Api::release_value>>;

}  // namespace dragoman::ort
