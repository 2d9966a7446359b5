// Checkpoints that look like RL: realistic tensors, and steps whose changes follow the measured
// law.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

// Random numbers that are the same on every machine: xoshiro256++, seeded by splitmix64. No
// std:: distribution and no libm, whose results differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept {
    for (uint64_t& word : state_) {
      uint64_t z = seed += 0x9e3779b97f4a7c15;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  uint64_t next() noexcept {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  double uniform() noexcept { return double(next() >> 11) * 0x1p-53; }  // in [0, 1)

 private:
  uint64_t state_[4];
};

struct SimulatedTensor {
  std::string name;
  Shape shape;
  double scale = 0;     // standard deviation of the weights; 0: norm weights around one
  bool master = false;  // F32, as a trainer keeps them; else BF16, as engines have them

  uint64_t num_elements() const noexcept;
  DType dtype() const noexcept { return master ? DType::kF32 : DType::kBF16; }
};

// The tensors of a decoder-only transformer with about `params` parameters, at least 1000, in
// checkpoint order.
std::vector<SimulatedTensor> simulated_model(uint64_t params);
// The same for a --params of the command line, such as "500M".
Result<std::vector<SimulatedTensor>> simulated_model(const std::string& params);

// The step size that makes `density` of the model's elements change per step; density in (0, 0.5].
double calibrate_step_size(const std::vector<SimulatedTensor>& model, double density);

// What a step of a given size does to a weight of each exponent. Adam moves every weight by about
// the same amount, so this moves each by an exponentially distributed amount, either way, and
// rounds to a neighbour in BF16 by chance, as far as the hidden remainder of a trainer's FP32
// weights would. Counted in units of the weight's last place, that is: no change with probability 1
// - p, else 1 + a geometric number of places.
struct StepLaw {
  explicit StepLaw(double step_size);

  struct Class {
    double hit = 0;        // p: how likely a weight changes
    double again = 0;      // how likely each further place is
    float unit = 0;        // the last place
    bool blurred = false;  // the step is far larger than the place: the unit is not the place
  };
  std::array<Class, 256> classes;  // by the exponent's bits
};

// Simulates one tensor over steps. The same arguments, including the name, give the same bits on
// every machine.
class TensorSimulation {
 public:
  TensorSimulation(const SimulatedTensor& tensor, double step_size, uint64_t seed);

  std::span<const uint16_t> values() const noexcept { return values_; }
  uint64_t step();  // how many elements changed

 private:
  uint16_t changed(uint16_t value, Random& random) const;

  std::vector<uint16_t> values_;
  StepLaw law_;
  std::array<uint32_t, 256> thresholds_;  // StepLaw::Class::hit of 2^32
  Random random_;
};

// The same in the trainer's own F32: every weight moves at every step, by an amount of the same
// law. Rounded to BF16, as many change as in a TensorSimulation.
class MasterSimulation {
 public:
  MasterSimulation(const SimulatedTensor& tensor, double step_size, uint64_t seed);

  std::span<const float> values() const noexcept { return values_; }
  uint64_t step();  // how many elements changed in BF16

 private:
  std::vector<float> values_;
  double step_size_;
  Random random_;
};

// ---- files: all versions of a run, written tensor by tensor

struct SimulationPlan {
  std::vector<SimulatedTensor> model;
  double step_size = 0;
  uint64_t num_steps = 0, seed = 1;
  uint64_t num_shards = 1;  // at most one per tensor
  bool overwrite = false;
  unsigned threads = 0;
  Progress progress;
};

struct SimulationReport {
  std::vector<std::filesystem::path> paths;  // of the versions
  std::vector<uint64_t> num_changed;         // by each step
  uint64_t size_bytes = 0;                   // of all files
};

// Writes num_steps + 1 checkpoints into `folder`, which is made when missing: v0.safetensors and so
// on, or folders v0/ and so on when there are several shards. The bits do not depend on `threads`.
// Memory is one tensor per thread, beside pages of the files. All versions appear at the end; after
// a failure there are none.
Result<SimulationReport> write_simulation(const std::filesystem::path& folder,
                                          const SimulationPlan& plan);

}  // namespace deltawire::cli
