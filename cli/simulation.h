// Checkpoints that look like RL: realistic tensors, and steps whose changes follow the measured law.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire::cli {

struct SimulatedTensor {
  std::string name;
  Shape shape;       // of BF16 elements
  double scale = 0;  // standard deviation of the weights; 0: norm weights around one
};

// The tensors of a decoder-only transformer with about `params` parameters, in checkpoint order.
std::vector<SimulatedTensor> simulated_model(uint64_t params);

// The step size that makes `density` of the model's elements change per step.
double calibrate_step_size(const std::vector<SimulatedTensor>& model, double density);

// One tensor through time. The same arguments give the same bits on every machine.
class TensorSimulation {
 public:
  TensorSimulation(const SimulatedTensor& tensor, double step_size, uint64_t seed);

  std::span<const uint16_t> values() const noexcept { return values_; }
  void step();

 private:
  std::vector<uint16_t> values_;
  double step_size_;
  uint64_t random_state_[4];
};

}  // namespace deltawire::cli
