// The operator Choose: the best tokens of logits that were changed after their step.
#pragma once

#include "model/vocabulary.hpp"
#include "operators/context.hpp"
#include "operators/node.hpp"

namespace dragoman {

class ChooseKernel {
 public:
  static constexpr const char* kName = "Choose";
  // logits [M, V], best_count [1]
  static constexpr ort::ElementType kInputs[] = {ort::ElementType::kFloat, ort::ElementType::kInt32};
  // log_sums [M], best_scores [M, C], best_ids [M, C]
  static constexpr ort::ElementType kOutputs[] = {ort::ElementType::kFloat, ort::ElementType::kFloat,
                                                  ort::ElementType::kInt64};

  explicit ChooseKernel(const Node&) : kernels_(chosen_kernels()) {}

  void compute(Context& context) {
    const TensorShape shape = context.input_shape(0, "logits");
    if (shape.size() != 2 || shape[1] == 0)
      throw std::invalid_argument("logits: expected the shape [rows, vocabulary]");
    const auto logits = context.input<float>(0, "logits");
    const auto count = context.input<std::int32_t>(1, "best_count", 1);
    check_values("best_count", count, 0, shape[1]);
    float* log_sums = context.output<float>(0, {shape[0]});
    float* best_scores = context.output<float>(1, {shape[0], count.data[0]});
    std::int64_t* best_ids = context.output<std::int64_t>(2, {shape[0], count.data[0]});
    choose(logits.data, shape[0], shape[1], kernels_, context.parallel(), own_workspace(),
           {count.data[0], log_sums, best_scores, best_ids});
  }

 private:
  const Kernels& kernels_;
};

}  // namespace dragoman
