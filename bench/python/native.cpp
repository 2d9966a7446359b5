// The C++ side of bench.py: publishes and pulls two states of a model in turn, as bench.py does it.
//
//   native OLD.safetensors NEW.safetensors ROUNDS
//
// Prints one line per round: seconds of publish, seconds of pull.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "deltawire/tensor_replica.h"

namespace {

using namespace deltawire;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
T value(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
  std::exit(1);
}

// A state in memory of its own.
struct State {
  Checkpoint names;
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<PublishTensor> tensors;

  explicit State(const char* path) : names(value(Checkpoint::open(path))) {
    for (const CheckpointTensor& tensor : names.tensors()) {
      bytes.emplace_back(tensor.view.bytes.begin(), tensor.view.bytes.end());
      tensors.push_back({tensor.view, {}});
      tensors.back().view.bytes = bytes.back();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const State states[] = {State(argv[1]), State(argv[2])};
  State held(argv[1]);
  std::vector<LiveTensor> live;
  for (size_t i = 0; i < held.tensors.size(); ++i) {
    const TensorView& view = held.tensors[i].view;
    live.push_back({std::string(view.name), view.dtype, view.shape, held.bytes[i]});
  }

  const std::shared_ptr<Store> store = value(open_store("memory:native", {}));
  Publisher publisher = value(Publisher::open(store));
  value(publisher.publish(states[0].tensors));
  TensorReplica replica = value(TensorReplica::open(store, live, {}));
  value(replica.pull());
  for (int round = 1; round <= std::atoi(argv[3]); ++round) {
    const double begin = now();
    value(publisher.publish(states[round % 2].tensors));
    const double published = now();
    value(replica.pull());
    const double pulled = now();
    if (held.bytes != states[round % 2].bytes) return 1;
    std::printf("%.6f %.6f\n", published - begin, pulled - published);
  }
}
