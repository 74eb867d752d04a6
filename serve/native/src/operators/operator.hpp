// A kernel class as an operator of ONNX Runtime. Exceptions become statuses.
#pragma once

#include <exception>
#include <stdexcept>

#include "operators/context.hpp"
#include "operators/node.hpp"

namespace dragoman {

// The last kernel of a type that this thread has created, for whoever creates sessions; null before the first one.
template <class Kernel>
Kernel*& last_created() {
  thread_local Kernel* last = nullptr;
  return last;
}

// `Kernel` has a constructor from `const Node&`, `void compute(Context&)`, and the constants
// - kName,
// - kInputs and kOutputs: arrays of element types; kUndefined at the end stands for one or more of any types.
template <class Kernel>
class Operator : public ort::CustomOp {
 public:
  Operator(const ort::Api& api, Index threads) : CustomOp{}, api_(api), threads_(threads) {
    version = ort::kOperatorVersion;
    get_name = [](const CustomOp*) { return Kernel::kName; };
    get_execution_provider_type = [](const CustomOp*) -> const char* { return nullptr; };  // the CPU
    get_input_type_count = [](const CustomOp*) { return std::size(Kernel::kInputs); };
    get_input_type = [](const CustomOp*, std::size_t i) { return Kernel::kInputs[i]; };
    get_output_type_count = [](const CustomOp*) { return std::size(Kernel::kOutputs); };
    get_output_type = [](const CustomOp*, std::size_t i) { return Kernel::kOutputs[i]; };
    get_input_characteristic = [](const CustomOp*, std::size_t i) { return characteristic(Kernel::kInputs[i]); };
    get_output_characteristic = [](const CustomOp*, std::size_t i) { return characteristic(Kernel::kOutputs[i]); };
    get_input_memory_type = [](const CustomOp*, std::size_t) { return ort::MemType::kDefault; };
    get_variadic_input_min_arity = get_variadic_output_min_arity = [](const CustomOp*) { return 1; };
    get_variadic_input_homogeneity = get_variadic_output_homogeneity = [](const CustomOp*) { return 0; };
    create_kernel_v2 = [](const CustomOp* self, const ort::Function*, const ort::KernelInfo* info, void** kernel) {
      const auto& op = *static_cast<const Operator*>(self);
      return op.status_of([&] {
        auto* instance = new Instance{op, Kernel(Node(op.api_, info))};
        last_created<Kernel>() = &instance->kernel;
        *kernel = instance;
      });
    };
    kernel_compute_v2 = [](void* kernel, ort::KernelContext* context) {
      auto& self = *static_cast<Instance*>(kernel);
      return self.op.status_of([&] {
        Context of_run(self.op.api_, context, self.op.threads_);
        self.kernel.compute(of_run);
      });
    };
    kernel_destroy = [](void* kernel) { delete static_cast<Instance*>(kernel); };
  }

 private:
  struct Instance {
    const Operator& op;
    Kernel kernel;
  };

  static ort::Characteristic characteristic(ort::ElementType type) {
    return type == ort::ElementType::kUndefined ? ort::Characteristic::kVariadic : ort::Characteristic::kRequired;
  }

  template <class F>
  ort::Status* status_of(F&& f) const {
    const auto error = [this](ort::ErrorCode code, const std::exception& cause) {
      return api_.create_status(code, (std::string(Kernel::kName) + ": " + cause.what()).c_str());
    };
    try {
      f();
      return nullptr;
    } catch (const std::invalid_argument& cause) {
      return error(ort::ErrorCode::kInvalidArgument, cause);
    } catch (const std::exception& cause) {
      return error(ort::ErrorCode::kFail, cause);
    }
  }

  const ort::Api& api_;
  Index threads_;
};

}  // namespace dragoman
