// Compiled without contraction of floating-point expressions (CMakeLists.txt): +, -, *, / and sqrt
// are then the same on every machine, and nothing else is used.
#include "lab/simulate/simulation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace deltawire::cli {
namespace {

constexpr int kBias = 127;        // of BF16's exponent
constexpr int kFractionBits = 7;  // of BF16
constexpr double kJumpShare =
    1e-5;  // of the changes: to a value that has nothing to do with the old
constexpr double kNormSpread = 0.05;

// A step of more places than this is not counted in places any more.
constexpr double kManyPlaces = 64;

// e^-x for x >= 0: a short series near 0, then squared back up.
double exp_of_minus(double x) {
  if (x > 700) return 0;
  int halvings = 0;
  for (; x > 0x1p-10; x /= 2) ++halvings;
  double result = 1 - x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
  for (; halvings != 0; --halvings) result *= result;
  return result;
}

// -ln((x + 1) / 2^63) for x < 2^63: an exponential deviate of a uniform one.
double minus_log(uint64_t x) {
  const uint64_t bits = std::bit_cast<uint64_t>(double(x + 1));
  const int exponent = int(bits >> 52) - 1023;
  const double fraction =
      std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | 0x3ffULL << 52);
  // ln of a fraction in [1, 2) is 2 atanh z; z is at most 1/3, so the series ends soon.
  const double z = (fraction - 1) / (fraction + 1), square = z * z;
  double sum = 0;
  for (int i = 19; i >= 1; i -= 2) sum = sum * square + 1.0 / i;
  constexpr double kLn2 = 0.693147180559945309417;
  return (63 - exponent) * kLn2 - 2 * z * sum;
}

float power_of_two(int exponent) {
  if (exponent < -126) return std::bit_cast<float>(uint32_t{1} << (exponent + 149));
  return std::bit_cast<float>(uint32_t(exponent + kBias) << 23);
}

float to_float(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

// To nearest, ties to even; finite values only.
uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// A deviate of mean 0 and variance 1, nearly normal: 32 coins, and a uniform number that fills the
// cells between their sums so finely that small weights have the right exponents.
constexpr int kCoins = 32;
const double kCellsPerDeviation = std::sqrt(kCoins / 4.0 + 1.0 / 12);

uint32_t count_ones(uint32_t x) {  // std::popcount is a call where the target has no instruction
  x -= (x >> 1) & 0x55555555;
  x = (x & 0x33333333) + ((x >> 2) & 0x33333333);
  return (((x + (x >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

// In cells.
double coins(uint64_t bits) {
  return double(int64_t(count_ones(uint32_t(bits >> 32))) - kCoins / 2) +
         (double(int64_t(uint32_t(bits))) * 0x1p-32 - 0.5);
}

// How likely such a deviate is below x in absolute value.
double deviate_below(double x) {
  x *= kCellsPerDeviation;
  double ways = 1, below = 0;  // ways: of the coins to sum to `heads`, of 2^32
  for (int heads = 0; heads <= kCoins; ++heads) {
    const double left = heads - kCoins / 2 - 0.5;
    const double covered = std::min(left + 1, x) - std::max(left, -x);
    below += ways * 0x1p-32 * std::max(covered, 0.0);
    ways = ways * (kCoins - heads) / (heads + 1);
  }
  return below;
}

double density_of(const StepLaw& law, double scale) {
  const auto hit = [&](int exponent) { return law.classes[size_t(exponent + kBias)].hit; };
  if (scale == 0) return (hit(-1) + hit(0)) / 2;
  constexpr double kRoundsUp = 1 - 0x1p-9;  // from here on to the next power of two, in BF16
  double density = 0, below = 0;
  for (int exponent = -60; exponent < 8; ++exponent) {
    const double up_to = deviate_below(double(power_of_two(exponent + 1)) * kRoundsUp / scale);
    density += (up_to - below) * hit(exponent);
    below = up_to;
  }
  return density;
}

uint64_t hash_of(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return hash;
}

// Weights as a model begins with them.
template <typename Value, typename Round>
void draw(const SimulatedTensor& tensor, Random* from, std::vector<Value>* values, Round round) {
  const double mean = tensor.scale == 0 ? 1 : 0;
  const double cell = (tensor.scale == 0 ? kNormSpread : tensor.scale) / kCellsPerDeviation;
  Random random = *from;  // in registers
  for (Value& value : *values) value = round(float(mean + cell * coins(random.next())));
  *from = random;
}

}  // namespace

uint64_t SimulatedTensor::num_elements() const noexcept {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  return n;
}

double calibrate_step_size(const std::vector<SimulatedTensor>& model, double density) {
  std::map<double, double> elements_of_scale;
  double total = 0;
  for (const SimulatedTensor& tensor : model) {
    elements_of_scale[tensor.scale] += double(tensor.num_elements());
    total += double(tensor.num_elements());
  }
  double low = 0x1p-60, high = 1;
  while (high / low > 1 + 1e-9) {
    const double middle = std::sqrt(low * high);
    const StepLaw law(middle);
    double changed = 0;
    for (const auto& [scale, elements] : elements_of_scale) {
      changed += elements * density_of(law, scale);
    }
    (changed < density * total ? low : high) = middle;
  }
  return low;
}

StepLaw::StepLaw(double step_size) {
  for (int exponent = 0; exponent < 256; ++exponent) {
    const float place = power_of_two(std::max(exponent, 1) - kBias - kFractionBits);
    const double places = step_size / double(place);  // the mean of the exponential law
    Class& one = classes[size_t(exponent)];
    if (places > kManyPlaces) {
      one = {1, exp_of_minus(1 / kManyPlaces), float(step_size / kManyPlaces), true};
    } else {
      const double again = exp_of_minus(1 / places);
      one = {places * (1 - again), again, place, false};
    }
  }
  classes[255] = {};  // no infinities and no NaNs come up; if given, they stay
}

TensorSimulation::TensorSimulation(const SimulatedTensor& tensor, double step_size, uint64_t seed)
    : values_(tensor.num_elements()), law_(step_size), random_(seed ^ hash_of(tensor.name)) {
  for (size_t i = 0; i < thresholds_.size(); ++i) {
    thresholds_[i] = uint32_t(std::min(law_.classes[i].hit * 0x1p32, 0x1p32 - 1));
  }
  draw(tensor, &random_, &values_, to_bf16);
}

uint16_t TensorSimulation::changed(uint16_t value, Random& random) const {
  if (random.uniform() < kJumpShare) {  // any sign and fraction, an exponent below that of 1
    return uint16_t(value ^ (random.next() & 0x8fff) ^ 1) & 0xbf7f;
  }
  const StepLaw::Class& law = law_.classes[(value >> kFractionBits) & 0xff];
  double places = law.blurred ? random.uniform() : 1;
  while (random.uniform() < law.again) ++places;
  const double move = places * double(law.unit);
  const bool down = (random.next() >> 63) != 0;
  return to_bf16(float(double(to_float(value)) + (down ? -move : move)));
}

// Nearly all elements need half a draw and one compare.
uint64_t TensorSimulation::step() {
  Random random = random_;  // in registers
  uint64_t num_changed = 0, bits = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    bits = i % 2 == 0 ? random.next() : bits >> 32;
    const uint16_t value = values_[i];
    if (uint32_t(bits) >= thresholds_[(value >> kFractionBits) & 0xff]) [[likely]]
      continue;
    values_[i] = changed(value, random);
    num_changed += values_[i] != value;
  }
  random_ = random;
  return num_changed;
}

MasterSimulation::MasterSimulation(const SimulatedTensor& tensor, double step_size, uint64_t seed)
    : values_(tensor.num_elements()), step_size_(step_size), random_(seed ^ hash_of(tensor.name)) {
  draw(tensor, &random_, &values_, [](float value) { return value; });
}

uint64_t MasterSimulation::step() {
  Random random = random_;  // in registers
  uint64_t num_changed = 0;
  for (float& value : values_) {
    const uint64_t bits = random.next();
    const double move = step_size_ * minus_log(bits >> 1);
    const float moved = float(double(value) + ((bits & 1) != 0 ? -move : move));
    num_changed += to_bf16(moved) != to_bf16(value);
    value = moved;
  }
  random_ = random;
  return num_changed;
}

}  // namespace deltawire::cli
