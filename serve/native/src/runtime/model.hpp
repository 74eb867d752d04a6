// A model that Python opened, and that gives each engine of a loop what it computes with.
#pragma once

#include <cstdint>
#include <memory>

#include "loop/step_model.hpp"

namespace dragoman {

struct Model {
  virtual ~Model() = default;
  // Throws std::exception if there is none.
  virtual std::shared_ptr<StepModel> engine(int32_t slots) = 0;
};

}  // namespace dragoman
