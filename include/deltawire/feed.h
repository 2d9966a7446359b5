// The live feed: how engine workers of a host follow its replica. The replica
// (ReplicaOptions::feed) decodes a version once and keeps what it wrote into its files, positions
// and values, beside them. Each worker reads that, picks out its own part of every tensor, and
// writes it into its live weights: no worker has a copy of the model, and none talks to the store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A step of the replica, in the feed.
struct FeedStep {
  Identity to;
  // None: nothing is known but where it leads, and a worker has to read the checkpoint.
  std::optional<Identity> from;
  Manifest manifest;  // of `to`
  std::filesystem::path folder;
  std::vector<std::string> parts;  // in it
};

// Steps of a feed, by version. Those that are being removed, or that a later release wrote, are
// left out. NotFound when LOCAL has no feed.
Result<std::vector<FeedStep>> read_feed(const std::filesystem::path& local);

// The steps that lead from one version to another, in order; NotFound when they are not all there,
// or when they lead from other weights that only have the same number.
Result<std::vector<FeedStep>> feed_route(const std::vector<FeedStep>& steps, const Identity& from,
                                         const Identity& to);

// The digests of the tensors of the version that a step leads to, by name; `schema` is that of the
// checkpoint. BaseMismatch when they are not its tensors; Unsupported when its digests do not add
// up.
Result<std::map<std::string, Digest>> feed_digests(const FeedStep& step, const Schema& schema);

// A process that reads a feed says so, and which version it has: steps that it has not taken stay,
// within limits.
class FeedWorker {
 public:
  // Conflict when a living process has that name.
  static Result<FeedWorker> join(const std::filesystem::path& local, const std::string& name,
                                 const Identity& version);
  ~FeedWorker();
  FeedWorker(FeedWorker&& other) noexcept;
  FeedWorker& operator=(FeedWorker&&) = delete;

  Status took(const Identity& version);

 private:
  FeedWorker(int fd, std::filesystem::path file) : fd_(fd), file_(std::move(file)) {}
  int fd_;
  std::filesystem::path file_;
};

// What the living workers of the host have; a worker that has not said so yet has an empty run.
// Removes the files of dead ones.
std::vector<Identity> feed_workers(const std::filesystem::path& local);
// The one that is furthest behind `held`, what the replica holds: another run's is behind all of
// its own. None: there are no workers, or one has not said yet what it has.
std::optional<Identity> slowest_feed_worker(const std::filesystem::path& local,
                                            const Identity& held);

// Where elements of a tensor are in an array of an engine: element (i, j, ...) of a window is
// number first + i * strides[0] + j * strides[1] ... of the tensor, counted as checkpoints have it,
// and number array_first + i * array_strides[0] + ... of the array's memory.
struct Window {
  std::vector<uint64_t> extent;
  uint64_t first = 0;
  std::vector<uint64_t> strides;
  uint32_t array = 0;  // which of the engine's arrays
  uint64_t array_first = 0;
  std::vector<uint64_t> array_strides;
};

// The part of a model that one worker has. What lies in no window is left out.
struct LiveMap {
  struct Tensor {
    DType dtype = DType::kBF16;
    Shape shape;
    std::vector<Window> windows;
  };
  std::map<std::string, Tensor> tensors;    // as checkpoints have them
  std::vector<uint64_t> array_elements;     // of each of the engine's arrays
  std::vector<unsigned> array_widths = {};  // bytes of an element
};

// InvalidArgument, naming tensor and window, unless every window lies in its tensor and its array,
// runs through its tensor in order, and has the tensor's width.
Status check_map(const LiveMap& map);

// New values for elements of an array. Offsets ascend, and none comes twice.
struct ArrayChanges {
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;  // packed
};

struct MappedChanges {
  std::vector<ArrayChanges> arrays;          // as the map has them
  std::vector<std::string> changed_tensors;  // all that the route changes, mapped or not; sorted
};

// What `route` changes in each array of the map; of an element that several steps change, the last
// value. All that is read is checked first: Corruption names the part. BaseMismatch when a tensor
// has another dtype or shape than the map says. `threads`: 0 is one for each core.
Result<MappedChanges> map_feed(const std::vector<FeedStep>& route, const LiveMap& map,
                               unsigned threads = 0);

}  // namespace deltawire
