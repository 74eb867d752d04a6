// What the library exports: the registration of its operators, and the name of the instruction set in use.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "operators/choose.hpp"
#include "operators/encode.hpp"
#include "operators/operator.hpp"
#include "operators/register.hpp"
#include "operators/step.hpp"

#define DRAGOMAN_EXPORT extern "C" __attribute__((visibility("default")))

namespace dragoman {

namespace {

constexpr const char* kDomain = "dragoman";
constexpr Index kMaxThreads = 256;

std::atomic<const ort::ApiBase*> last_base{nullptr};

// The operators of one copy of ONNX Runtime, for one number of threads. It lives as long as the process, because
// sessions refer to it.
struct Operators {
  Operator<EncodeKernel> encode;
  Operator<StepKernel> step;
  Operator<ChooseKernel> choose;
  ort::CustomOpDomain* domain;

  Operators(const ort::Api& api, Index threads)
      : encode(api, threads),
        step(api, threads),
        choose(api, threads),
        domain(api.get(api.create_custom_op_domain, kDomain)) {
    const ort::CustomOp* all[] = {&encode, &step, &choose};
    for (const ort::CustomOp* op : all) api.check(api.custom_op_domain_add(domain, op));
  }
};

Index read_threads(const ort::Api& api, const ort::SessionOptions* options) {
  if (api.get(api.has_session_config_entry, options, kThreadsEntry) == 0) return 1;
  std::string text(16, '\0');
  std::size_t size = text.size();
  api.check(api.get_session_config_entry(options, kThreadsEntry, text.data(), &size));
  const long threads = std::strtol(text.c_str(), nullptr, 10);
  if (threads < 1 || threads > kMaxThreads)
    throw std::invalid_argument(std::string(kThreadsEntry) + ": expected 1 to " + std::to_string(kMaxThreads) +
                                ", got " + text.c_str());
  return threads;
}

}  // namespace

void add_operators(ort::SessionOptions* options, const ort::ApiBase* base) {
  static std::mutex mutex;
  static std::map<std::pair<const ort::Api*, Index>, Operators> registered;
  const ort::Api& api = ort::load(base);
  const Index threads = read_threads(api, options);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = registered.try_emplace({&api, threads}, api, threads).first;
  api.check(api.add_custom_op_domain(options, found->second.domain));
  last_base = base;
}

const ort::ApiBase* registered_base() { return last_base; }

}  // namespace dragoman

// ONNX Runtime calls this function by its name. Returns nullptr, or an error.
DRAGOMAN_EXPORT dragoman::ort::Status* RegisterCustomOps(dragoman::ort::SessionOptions* options,
                                                         const dragoman::ort::ApiBase* base) {
  using namespace dragoman;
  try {
    add_operators(options, base);
    return nullptr;
  } catch (const std::exception& cause) {
    const ort::Function* table = base->get_api(1);
    if (table == nullptr) return nullptr;  // it has no way to receive an error; sessions run the functions of a graph
    const auto create_status = reinterpret_cast<decltype(ort::Api::create_status)>(table[0]);
    return create_status(ort::ErrorCode::kFail, cause.what());
  }
}

// Writes the name of the instruction set in use and returns 0, or writes an error message and returns 1.
DRAGOMAN_EXPORT int dragoman_instructions(char* text, std::size_t size) {
  using namespace dragoman;
  try {
    std::snprintf(text, size, "%s", chosen_kernels().name);
    return 0;
  } catch (const std::exception& cause) {
    std::snprintf(text, size, "%s", cause.what());
    return 1;
  }
}
