#include "ort/api.hpp"

#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

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
  return loaded.emplace(base, read_table(table)).first->second;
}

}  // namespace dragoman::ort
