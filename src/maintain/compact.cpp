// Merged deltas.
#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/sync_point.h"
#include "base/thread_pool.h"
#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "deltawire/maintain.h"
#include "diff/diff.h"
#include "maintain/walk_parts.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kChecksAtOnce = 8;  // requests: a store has latency

// A checkpoint as what a diff is made against. It was checked when it was brought there.
class CheckpointState final : public OldState {
 public:
  explicit CheckpointState(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  Result<std::optional<OldPiece>> find(const TensorSpec& form, const Box& box) const override {
    const CheckpointTensor* tensor = checkpoint_.find(form.name);
    if (tensor == nullptr || !same_form(tensor->view, form) || !box.whole()) {
      return std::optional<OldPiece>();
    }
    return std::optional(OldPiece{tensor->view.bytes, nullptr});
  }
  Hashing hashing() const override { return Hashing::kChanged; }

 private:
  const Checkpoint& checkpoint_;
};

struct End {
  VersionRecord record;
  Schema schema;
};

class Compaction {
 public:
  Compaction(const Chain& chain, const CompactOptions& options, WorkFolder work)
      : store_(chain.shared_store()),
        chain_(chain),
        options_(options),
        work_(std::move(work)),
        pool_(options.work.threads) {}

  Result<CompactReport> run() {
    const PublishClock clock;
    CompactReport report;
    report.run = chain_.run();
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain_.head());
    if (!head) return not_found(store_->url() + ": nothing was published yet");
    const uint64_t upto = options_.upto.value_or(*head);
    if (upto > *head) {
      return not_found(store_->url() + ": version " + std::to_string(upto) +
                       " was not published yet; the head is " + std::to_string(*head));
    }
    DW_ASSIGN_OR_RETURN(const VersionRecord newest, chain_.version(*head));
    DW_RETURN_IF_ERROR(check_key(chain_, newest.manifest));
    std::vector<uint64_t> spans = options_.spans;
    std::sort(spans.begin(), spans.end());
    DW_ASSIGN_OR_RETURN(const auto there, find_there(upto, spans));
    for (const uint64_t span : spans) {
      for (uint64_t base = (options_.from + span - 1) / span * span; base + span <= upto;
           base += span) {
        if (there.contains({base, base + span})) {
          ++report.num_there;
          continue;
        }
        DW_ASSIGN_OR_RETURN(MergedDelta merged, merge(base, base + span));
        report.merged.push_back(std::move(merged));
      }
    }
    report.seconds = clock.now();
    return report;
  }

 private:
  // The spans among those wanted that have a merged delta which can be used: a name in a listing
  // says neither that its parts are there nor who made it.
  using Span = std::pair<uint64_t, uint64_t>;
  Result<std::set<Span>> find_there(uint64_t upto, const std::vector<uint64_t>& spans) {
    DW_ASSIGN_OR_RETURN(auto hops, list_hops(chain_, options_.from, upto, SIZE_MAX));
    std::erase_if(hops, [&](const HopName& hop) {
      return !hop.base || std::none_of(spans.begin(), spans.end(), [&](uint64_t span) {
        return hop.version - *hop.base == span && *hop.base % span == 0;
      });
    });
    std::vector<Result<bool>> usable(hops.size(), false);
    ThreadPool pool(kChecksAtOnce);
    pool.parallel_for(hops.size(),
                      [&](size_t i, unsigned) { usable[i] = is_usable(chain_, hops[i]); });
    std::set<Span> there;
    for (size_t i = 0; i < hops.size(); ++i) {
      DW_RETURN_IF_ERROR(Status(usable[i].status()));
      if (*usable[i]) there.emplace(*hops[i].base, hops[i].version);
    }
    return there;
  }

  Result<End> read_end(uint64_t version) const {
    End end;
    DW_ASSIGN_OR_RETURN(end.record, chain_.version(version));
    DW_ASSIGN_OR_RETURN(end.schema, chain_.schema(end.record.manifest));
    DW_RETURN_IF_ERROR(states_of(end.schema, end.record.manifest).status());
    return end;
  }

  Result<MergedDelta> merge(uint64_t base, uint64_t version) {
    const PublishClock clock;
    MergedDelta merged;
    merged.base = base;
    merged.version = version;
    Result<End> from = read_end(base), to = read_end(version);
    for (const Result<End>* end : {&from, &to}) {
      if (end->ok()) continue;
      if (end->status().code() != Code::kNotFound) return end->status();
      merged.skipped = "version " + std::to_string(end == &from ? base : version) + " was pruned";
      return merged;
    }
    for (const Result<End>* end : {&from, &to}) {  // a hop record vouches for both of its ends
      if (Status status = check_key(chain_, (*end)->record.manifest); !status.ok()) {
        merged.skipped = status.message();
        return merged;
      }
    }
    merged.separate_bytes = to->record.manifest.chain_bytes - from->record.manifest.chain_bytes;
    PartStreamOptions parts;
    const MemoryShares shares = share_memory(options_.memory_limit, options_.part_bytes);
    parts.folder = part_folder(version, random_hex(kAttemptDigits));
    parts.base = from->record.manifest.state;
    parts.part_bytes = shares.part_bytes;
    parts.memory_bytes = shares.queue_bytes;
    PartStream stream(*store_, parts, clock, [this] { return keep_going(); });
    DW_RETURN_IF_ERROR(fill(*from, *to, &stream));
    for (const PartRef& part : stream.parts()) merged.bytes += part.size_bytes;
    if (merged.bytes >= merged.separate_bytes) {
      merged.skipped = "it would take more bytes than the versions it spans";
      stream.abandon();
      return merged;
    }
    DW_SYNC_POINT("compact: parts put");
    DW_ASSIGN_OR_RETURN(const EnsuredHop ensured,
                        ensure_hop(chain_, &from->record, to->record, stream.parts()));
    merged.written = ensured == EnsuredHop::kAdded;
    if (!merged.written) {
      stream.abandon();
      merged.skipped = "another process added it meanwhile";
    }
    merged.seconds = clock.now();
    return merged;
  }

  // Puts the parts that lead from one end to the other.
  Status fill(const End& from, const End& to, PartStream* stream) {
    DW_RETURN_IF_ERROR(open_states());
    if (at_[0] != from.record.manifest.version && at_[1] == from.record.manifest.version) {
      std::swap(states_[0], states_[1]);
      std::swap(at_[0], at_[1]);
    }
    const Checkpoint* ends[2];
    for (size_t i = 0; i < 2; ++i) {
      const uint64_t version = (i == 0 ? from : to).record.manifest.version;
      DW_ASSIGN_OR_RETURN(ends[i], states_[i]->bring_to(version));
      at_[i] = version;
    }
    return diff_states(from, *ends[0], *ends[1], stream);
  }

  Status diff_states(const End& from, const Checkpoint& before, const Checkpoint& after,
                     PartStream* stream) {
    const std::vector<PublishTensor> tensors = tensors_of(after);
    const CheckpointState old(before);
    const DiffJob job{tensors,
                      old,
                      {&from.record.manifest, &from.schema},
                      options_.codec,
                      share_memory(options_.memory_limit, options_.part_bytes),
                      options_.work.progress};
    DW_RETURN_IF_ERROR(Status(diff_state(job, &pool_, stream).status()));
    std::vector<std::string> removed;
    for (const TensorSpec& tensor : from.schema.tensors) {
      if (after.find(tensor.name) == nullptr) removed.push_back(tensor.name);
    }
    return stream->finish(std::move(removed));
  }

  Status open_states() {
    for (size_t i = 0; i < 2; ++i) {
      if (states_[i]) continue;
      DW_ASSIGN_OR_RETURN(
          states_[i],
          ChainState::open(chain_, work_.path() / ("state-" + std::to_string(i)), options_.work));
    }
    return {};
  }

  bool keep_going() const { return !options_.work.progress || options_.work.progress(1, 1); }

  const std::shared_ptr<Store> store_;
  const Chain chain_;
  const CompactOptions& options_;
  const WorkFolder work_;
  ThreadPool pool_;
  std::optional<ChainState> states_[2];
  std::optional<uint64_t> at_[2];
};

Status check_memory(const CompactOptions& options) {
  if (options.memory_limit >= kLeastMemory) return {};
  return invalid_argument("the memory limit must be " + std::to_string(kLeastMemory >> 20) +
                          " MiB or more");
}

}  // namespace

Result<CompactReport> compact_chain(const Chain& chain, const CompactOptions& options) {
  for (const uint64_t span : options.spans) {
    if (span < 2) return invalid_argument("a span must be of two versions or more");
  }
  if (options.spans.empty()) return invalid_argument("there are no spans");
  DW_RETURN_IF_ERROR(check_memory(options));
  DW_ASSIGN_OR_RETURN(WorkFolder work, WorkFolder::make(options.work.folder));
  return Compaction(chain, options, std::move(work)).run();
}

}  // namespace deltawire
