#include "lab/bench/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <vector>

#include "cli/context.h"
#include "kernels/kernels.h"

namespace deltawire::cli {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of one input: what a thread takes at a time

struct Piece {
  const uint8_t *before, *after, *same;
  size_t size;
  size_t width;
};

std::vector<Piece> cut(const BenchData& data) {
  std::vector<Piece> pieces;
  for (const BenchTensor& tensor : data.tensors) {
    for (size_t at = 0; at < tensor.after.size(); at += kPieceBytes) {
      pieces.push_back({tensor.before.data() + at, tensor.after.data() + at,
                        tensor.work.data() + at, std::min(kPieceBytes, tensor.after.size() - at),
                        tensor.layout.width});
    }
  }
  return pieces;
}

// Reading needs a use that no compiler can drop.
struct Accumulator {
  static constexpr size_t kBytes = 128;
  uint64_t words[kBytes / 8] = {};

  void add(const uint8_t* p) {
    for (size_t k = 0; k < std::size(words); ++k) words[k] ^= load_le<uint64_t>(p + 8 * k);
  }
  uint64_t value() const {
    uint64_t all = 0;
    for (const uint64_t word : words) all ^= word;
    return all;
  }
};

template <size_t kAhead>
void prefetch(const uint8_t* p) {
  if constexpr (kAhead != 0) {
    for (size_t line = 0; line < Accumulator::kBytes; line += 64) {
      __builtin_prefetch(p + kAhead + line);
    }
  }
}

// The loops that compete for "as fast as it can be read": with prefetches of some distance or none,
// one input after the other or both at once.
using ReadLoop = uint64_t (*)(const Piece&);

template <size_t kAhead>
uint64_t read_in_turn(const Piece& piece) {
  Accumulator sum;
  for (const uint8_t* input : {piece.before, piece.after}) {
    for (size_t i = 0; i + Accumulator::kBytes <= piece.size; i += Accumulator::kBytes) {
      prefetch<kAhead>(input + i);
      sum.add(input + i);
    }
  }
  return sum.value();
}

template <size_t kAhead>
uint64_t read_together(const Piece& piece) {
  Accumulator sum;
  for (size_t i = 0; i + Accumulator::kBytes <= piece.size; i += Accumulator::kBytes) {
    prefetch<kAhead>(piece.before + i);
    prefetch<kAhead>(piece.after + i);
    sum.add(piece.before + i);
    sum.add(piece.after + i);
  }
  return sum.value();
}

constexpr ReadLoop kReadLoops[] = {read_in_turn<0>,  read_in_turn<1024>,  read_in_turn<4096>,
                                   read_together<0>, read_together<1024>, read_together<4096>};

uint64_t diff_piece(const Piece& piece, const uint8_t* other) {
  alignas(64) uint16_t positions[kSegmentElements + kStripElements];
  const auto diff = kernels().diff[width_index(piece.width)];
  const size_t n = piece.size / piece.width;
  uint64_t changed = 0;
  for (size_t at = 0; at < n; at += kSegmentElements) {
    changed += diff(piece.before + at * piece.width, other + at * piece.width,
                    std::min(kSegmentElements, n - at), positions);
  }
  return changed;
}

// The best bytes per second over several runs of body(piece) on all pieces; *sum is that of one.
template <class Body>
double best_rate(const std::vector<Piece>& pieces, ThreadPool* pool, Effort effort, uint64_t bytes,
                 uint64_t* sum, const Body& body) {
  double best = 0;
  const double begin = now_seconds();
  for (unsigned i = 0; i < effort.repeat || now_seconds() - begin < effort.min_seconds; ++i) {
    std::atomic<uint64_t> total{0};
    const double start = now_seconds();
    parallel_for(pool, pieces.size(), [&](size_t piece, unsigned) {
      total.fetch_add(body(pieces[piece]), std::memory_order_relaxed);
    });
    best = std::max(best, double(bytes) / (now_seconds() - start));
    *sum = total;
  }
  return best;
}

Status check_count(uint64_t expected, uint64_t got) {
  if (expected == got) return {};
  return internal_error("kernels " + std::string(kernels().name) + ": diff found " +
                        std::to_string(got) + " changes, not " + std::to_string(expected));
}

}  // namespace

Result<Bandwidth> measure_bandwidth(const BenchData& data, ThreadPool* pool, Effort effort,
                                    const Progress& progress) {
  const std::vector<Piece> pieces = cut(data);
  const uint64_t bytes = 2 * data.weights_bytes;
  const uint64_t num_runs = std::size(kReadLoops) + 2;
  uint64_t sum = 0, runs = 0;
  const auto go_on = [&]() -> Status {
    return progress(++runs * bytes, num_runs * bytes) ? Status() : cancelled("stopped on request");
  };
  reset_work(data, pool);
  Bandwidth result;
  result.threads = num_workers(pool);
  for (const ReadLoop loop : kReadLoops) {
    result.read = std::max(result.read, best_rate(pieces, pool, effort, bytes, &sum, loop));
    DW_RETURN_IF_ERROR(go_on());
  }
  result.diff_same = best_rate(pieces, pool, effort, bytes, &sum,
                               [](const Piece& piece) { return diff_piece(piece, piece.same); });
  DW_RETURN_IF_ERROR(check_count(0, sum));
  DW_RETURN_IF_ERROR(go_on());
  result.diff_changed = best_rate(pieces, pool, effort, bytes, &sum, [](const Piece& piece) {
    return diff_piece(piece, piece.after);
  });
  DW_RETURN_IF_ERROR(check_count(data.num_changed, sum));
  DW_RETURN_IF_ERROR(go_on());
  return result;
}

}  // namespace deltawire::cli
