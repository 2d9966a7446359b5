// From a trainer's shards to an engine's, rank to rank, with nothing gathered anywhere. Layouts say
// which boxes each rank holds; a plan, made once and the same on every rank, says who sends which
// box to whom; senders and receivers then move what changed inside those boxes over a Carrier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "carrier/carrier.h"
#include "deltawire/checkpoint.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "format/proof.h"

namespace deltawire {

// ---- layouts

struct ShardTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;  // of the whole tensor
  bool operator==(const ShardTensor&) const = default;
};

// A box that a rank holds, of a tensor by its number in the layout.
struct ShardPiece {
  uint32_t tensor = 0;
  Box box;
  bool operator==(const ShardPiece&) const = default;
};

struct ShardLayout {
  std::vector<ShardTensor> tensors;            // sorted by name
  std::vector<std::vector<ShardPiece>> ranks;  // sorted by tensor, then by box; none overlap

  // What one rank holds; LiveTensor::bytes are not looked at. Boxes without elements are left out.
  static Result<ShardLayout> of_rank(std::span<const LiveTensor> pieces);
  // The ranks of all of them, in this order. InvalidArgument, naming the tensor, when it has two
  // forms.
  static Result<ShardLayout> join(std::span<const ShardLayout> parts);
  // All ranks from a model's tensors and words such as "tp=4": docs/carriers.md has them. `config`
  // is the text of config.json, for the number of heads; empty: none.
  static Result<ShardLayout> of_spec(std::string_view spec, std::span<const ShardTensor> tensors,
                                     std::string_view config);
  static Result<ShardLayout> of_spec(std::string_view spec, const Checkpoint& checkpoint);

  // JSON, and back. Texts are untrusted: Corruption for one that is no layout.
  std::string to_text() const;
  static Result<ShardLayout> parse(std::string_view text);

  uint64_t rank_bytes(unsigned rank) const;
  bool operator==(const ShardLayout&) const = default;
};

// ---- the plan

// A box that goes along an edge: part of one piece of the trainer, and of one of the engine.
struct ShardMove {
  uint32_t tensor = 0;  // in the plan's tensors
  Box box;              // in the tensor's coordinates
};

struct ShardEdge {
  unsigned trainer = 0, engine = 0;
  uint64_t bytes = 0;            // of its boxes
  std::vector<ShardMove> moves;  // by tensor; empty where the plan was made for another rank
};

// Why a layout cannot be served shard to shard, so that versions are broadcast instead.
enum class ShardObstacle : uint8_t {
  kMissingTensor,  // no trainer rank holds anything of it
  kOtherDtype,     // trainer and engine have it in different dtypes,
  kOtherShape,     // or shapes
  kGap,            // no trainer rank holds some elements that an engine rank has
  kCutBytes,       // a box would cut a byte of packed elements in two
};
std::string_view shard_obstacle_name(ShardObstacle obstacle) noexcept;  // "missing-tensor"

struct ShardRefusal {
  ShardObstacle obstacle = ShardObstacle::kMissingTensor;
  std::string tensor;
  std::string words;  // for people
};

struct ShardPlanOptions {
  // Keep the moves of this rank alone: all of them, for 1 T parameters, are many.
  std::optional<unsigned> trainer = {}, engine = {};
};

struct ShardPlan {
  unsigned num_trainers = 0, num_engines = 0;
  std::vector<ShardTensor> tensors;                   // those of the engine, sorted by name
  std::vector<ShardEdge> edges;                       // by trainer, then by engine
  std::vector<uint64_t> trainer_bytes, engine_bytes;  // that a rank sends, or gets
  uint64_t model_bytes = 0;  // of all tensors: what a broadcast sends to each engine rank
  Digest digest;             // of layouts and plan: the same on every rank, whatever was kept
  std::vector<ShardRefusal> refusals;  // empty: it can be used
  // By rank, what it adds to a proof: each box once, of tensors that both sides hold all of. Empty
  // for ranks that the plan was not made for.
  std::vector<std::vector<ShardPiece>> trainer_sums, engine_sums;

  uint64_t bytes() const;  // on all edges
  // Unsupported, naming obstacle and tensor, for a plan with refusals.
  Status check() const;
};

// Every element of every engine rank comes from exactly one trainer rank. An engine rank r that
// needs nothing but what trainer rank r holds gets all from there; of others that several hold,
// whoever has least to send, by bytes, sends. The same on every rank, so nobody has to tell anyone.
// What stands in the way is said in the plan and, once, in the log (event "shards.fallback").
// InvalidArgument for layouts without ranks, or a rank that there is not.
Result<ShardPlan> plan_shards(const ShardLayout& trainer, const ShardLayout& engine,
                              const ShardPlanOptions& options = {});

// ---- moving

// Copies the contents of a box, row by row, to `contents`, from wherever this rank has it.
using ReadShard =
    std::function<Status(const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents)>;
// Of tensors in host memory, which must outlive it. Tensors elsewhere: a function that copies.
Result<ReadShard> read_live(std::span<const LiveTensor> pieces);

struct ShardOptions {
  double timeout_seconds = 300;                 // of each exchange
  uint64_t bucket_bytes = uint64_t{512} << 20;  // on the way at one time, of all edges of a rank
  uint64_t slice_bytes = uint64_t{16} << 20;    // larger boxes are coded in slices
  unsigned threads = 0;                         // 0: one per core
  // Of a sender, beside its snapshot: for receivers that missed versions. None: an eighth of it.
  std::optional<uint64_t> history_bytes = {};
};

// What a version took, on this rank.
struct ShardReport {
  uint64_t version = 0;
  uint64_t sent_bytes = 0;                // on the wire, all told; of a receiver: received
  uint64_t contents_bytes = 0;            // of the boxes
  uint64_t num_changed = 0;               // elements; those of whole boxes all count
  unsigned num_delta = 0, num_whole = 0;  // edges
  unsigned num_merged = 0;                // of a sender: of num_delta, those of several versions
  double read_encode_seconds = 0;         // of a receiver: decode
  double carry_seconds = 0;               // in the carrier, waiting included
  std::vector<unsigned> lost;             // group ranks that went away; others have the version
  std::vector<std::string> notes;         // why edges were sent whole; receivers that failed
};

// In the carrier's group, trainer ranks come first: engine rank e is group rank num_trainers + e.
//
// A trainer rank's side. Keeps, in host memory, a snapshot of the boxes that it sends: what the
// last version was; and what leads back from it to some versions before. Receivers that hold one of
// these get what has changed since, others all of their boxes: so a receiver that failed is
// repaired by the next version. Ranks that the carrier says are lost are not waited for. One call
// at a time.
class ShardSender {
 public:
  // `plan` outlives it. InvalidArgument when the group's size or rank do not fit the plan.
  static Result<ShardSender> create(std::shared_ptr<const ShardPlan> plan, unsigned trainer,
                                    ReadShard read, const ShardOptions& options = {});
  ~ShardSender();
  ShardSender(ShardSender&&) noexcept;
  ShardSender& operator=(ShardSender&&) noexcept;

  // Sends what the tensors are now, as `version`: larger than the one before. The tensors must stay
  // as they are meanwhile; when they did not, the next version comes whole. Every rank of the group
  // calls it, or receive(). Conflict when a receiver made another plan. Unavailable, naming the
  // ranks, only when no receiver got it; else they are in the report.
  Result<ShardReport> send(Carrier& carrier, uint64_t version);

  // What this rank holds, for prove_shards(). A box that several trainer ranks hold is summed by
  // the first.
  Result<Proof> proof() const;

  uint64_t snapshot_bytes() const noexcept;
  std::optional<uint64_t> version() const noexcept;  // of the snapshot

 private:
  struct Impl;
  explicit ShardSender(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What has come of one box, checked and not yet written.
struct StagedShard {
  uint32_t tensor = 0;              // in the plan's tensors
  Box box;                          // in the tensor's coordinates
  bool whole = false;               // `values` are all of the box
  std::vector<uint64_t> positions;  // else: elements of the box's contents, ascending,
  std::vector<uint8_t> values;      // and what they become
};

// An engine rank's side. One call at a time.
class ShardReceiver {
 public:
  // `read` gives what this rank holds now.
  static Result<ShardReceiver> create(std::shared_ptr<const ShardPlan> plan, unsigned engine,
                                      ReadShard read, const ShardOptions& options = {});
  ~ShardReceiver();
  ShardReceiver(ShardReceiver&&) noexcept;
  ShardReceiver& operator=(ShardReceiver&&) noexcept;

  // Gets the next version, decodes it against what is held and checks all of it. Nothing is
  // written. After a failure the rank holds what it held, and the next version may be tried.
  Result<ShardReport> receive(Carrier& carrier);
  // What receive() got. Whoever has written it (or swapped it in) says so by committed(), or by
  // discarded() that it has not.
  const std::vector<StagedShard>& staged() const noexcept;
  // `written` false: nobody knows what the tensors are now. The next version comes whole.
  void committed(bool written = true);
  void discarded();
  // Writes what is staged to tensors in host memory, and then committed(). The same boxes as the
  // plan's; InvalidArgument before anything is written when some are missing.
  Status commit(std::span<const LiveTensor> pieces);

  // What this rank holds, for prove_shards(), as proof() of a sender.
  Result<Proof> proof() const;
  std::optional<uint64_t> version() const noexcept;  // that was committed

 private:
  struct Impl;
  explicit ShardReceiver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether engine ranks hold what trainer ranks hold: sums go to group rank 0, which compares the
// digests of all tensors that both sides have whole, and tells everybody. BaseMismatch, on every
// rank, names tensors that differ. The number of tensors that were compared.
Result<uint64_t> prove_shards(Carrier& carrier, const ShardPlan& plan, const Proof& own,
                              double timeout_seconds = 300);

}  // namespace deltawire
