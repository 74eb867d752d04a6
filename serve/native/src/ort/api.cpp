#include "ort/api.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace dragoman::ort {

namespace {

constexpr int kMajor = 1;

Api read_table(const Function* table) {
  Api api;
  bool complete = true;
#define DRAGOMAN_LOAD(slot, result, name, parameters)                \
  complete = complete && table[slot] != nullptr;                     \
  api.name = reinterpret_cast<decltype(api.name)>(table[slot]);
  DRAGOMAN_ORT_FUNCTIONS(DRAGOMAN_LOAD)
#undef DRAGOMAN_LOAD
  if (!complete) throw std::runtime_error("ONNX Runtime: a function is missing in its table");
  return api;
}

void require(bool condition) {
  if (!condition) throw std::runtime_error("ONNX Runtime: its functions do not behave as declared: wrong table");
}

void test_statuses(const Api& api) {
  Status* status = api.create_status(ErrorCode::kInvalidGraph, "self-test");
  require(status != nullptr);
  const bool equal = api.get_error_code(status) == ErrorCode::kInvalidGraph &&
                     std::strcmp(api.get_error_message(status), "self-test") == 0;
  api.release_status(status);
  require(equal);
}

void test_tensors(const Api& api) {
  std::array<int32_t, 6> data{};
  const std::array<int64_t, 2> shape{2, 3};
  MemoryInfo* memory = nullptr;
  api.check(api.create_cpu_memory_info(AllocatorType::kArena, MemType::kDefault, &memory));
  const OwnedMemoryInfo owned_memory(memory, {&api});
  Value* value = nullptr;
  api.check(api.create_tensor_with_data(memory, data.data(), sizeof data, shape.data(), 2, ElementType::kInt32, &value));
  const OwnedValue owned_value(value, {&api});
  void* address = nullptr;
  api.check(api.get_tensor_mutable_data(value, &address));
  size_t bytes = 0, rank = 0;
  api.check(api.get_tensor_size_in_bytes(value, &bytes));
  TensorInfo* info = nullptr;
  api.check(api.get_tensor_type_and_shape(value, &info));
  const OwnedTensorInfo owned_info(info, {&api});
  ElementType type = ElementType::kUndefined;
  api.check(api.get_tensor_element_type(info, &type));
  api.check(api.get_dimensions_count(info, &rank));
  require(address == data.data() && bytes == sizeof data && type == ElementType::kInt32 && rank == 2);
  std::array<int64_t, 2> found{};
  api.check(api.get_dimensions(info, found.data(), 2));
  require(found == shape);
}

void check_version(const char* version) {
  int major = 0;
  unsigned minor = 0;
  if (std::sscanf(version, "%d.%u", &major, &minor) != 2 || major != kMajor || minor < kApiVersion)
    throw std::runtime_error("ONNX Runtime " + std::string(version) + ": expected version " + std::to_string(kMajor) +
                             "." + std::to_string(kApiVersion) + " or a later one of " + std::to_string(kMajor) +
                             ".x");
}

}  // namespace

void Api::check(Status* status) const {
  if (status == nullptr) return;
  const std::string message = get_error_message(status);
  release_status(status);
  throw std::runtime_error(message);
}

const Api& load(const ApiBase* base) {
  static std::mutex mutex;
  static std::map<const ApiBase*, Api> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded.find(base);
  if (found != loaded.end()) return found->second;
  check_version(base->get_version_string());
  const Function* table = base->get_api(kApiVersion);
  if (table == nullptr) throw std::runtime_error("ONNX Runtime: it has no table of this version");
  const Api api = read_table(table);
  test_statuses(api);
  test_tensors(api);
  return loaded.emplace(base, api).first->second;
}

}  // namespace dragoman::ort
