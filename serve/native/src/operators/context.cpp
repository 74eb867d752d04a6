#include "operators/context.hpp"

#include "operators/node.hpp"

namespace dragoman {

const ort::Value* Context::input_value(std::size_t index, const char* name) const {
  const ort::Value* value = nullptr;
  api_.check(api_.kernel_context_get_input(context_, index, &value));
  if (value == nullptr) throw std::invalid_argument(std::string(name) + ": missing");
  return value;
}

Vector<void> Context::memory(const ort::Value* value) const {
  std::size_t bytes = 0;
  api_.check(api_.get_tensor_size_in_bytes(value, &bytes));
  void* data = nullptr;
  api_.check(api_.get_tensor_mutable_data(const_cast<ort::Value*>(value), &data));
  return {data, static_cast<Index>(bytes)};
}

TensorShape Context::input_shape(std::size_t index, const char* name) const {
  return read_tensor(api_, input_value(index, name)).shape;
}

void* Context::output_memory(std::size_t index, const TensorShape& shape, std::size_t element_bytes) const {
  ort::Value* value = nullptr;
  api_.check(api_.kernel_context_get_output(context_, index, shape.data(), shape.size(), &value));
  if (value == nullptr) throw std::invalid_argument("output " + std::to_string(index) + ": missing");
  const Vector<void> bytes = memory(value);
  auto expected = static_cast<Index>(element_bytes);
  for (const std::int64_t size : shape) expected *= size;
  if (bytes.count != expected)
    throw std::invalid_argument("output " + std::to_string(index) + ": expected " + std::to_string(expected) +
                                " bytes, got " + std::to_string(bytes.count));
  return bytes.data;
}

Parallel Context::parallel() {
  if (threads_ <= 1) return {};
  const auto run = [](void* self, Parallel::Task task, std::size_t count, void* user) {
    const Context& context = *static_cast<const Context*>(self);
    context.api_.check(context.api_.kernel_context_parallel_for(context.context_, task, count, count, user));
  };
  return {threads_, run, this};
}

void check_slots(const char* name, Vector<const std::int32_t> slots, Index count) {
  check_values(name, slots, 0, count - 1);
  std::vector<bool> seen(static_cast<std::size_t>(count));
  for (Index i = 0; i < slots.count; ++i) {
    const auto slot = static_cast<std::size_t>(slots.data[i]);
    if (seen[slot])
      throw std::invalid_argument(std::string(name) + ": expected different slots, got " + std::to_string(slot) +
                                  " twice");
    seen[slot] = true;
  }
}

}  // namespace dragoman
