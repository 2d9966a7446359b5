// Versions of a chain in another project's files.
#include <algorithm>

#include "base/guard.h"
#include "base/sync_point.h"
#include "bridge/bridge.h"
#include "bridge/export_work.h"
#include "bridge/foreign.h"
#include "tensor/form.h"
#include "transfer/upload_queue.h"

namespace deltawire {
namespace {

ForeignDraft full_draft(const DescribedVersion& now) {
  ForeignDraft draft;
  draft.version = now.record.manifest.version;
  draft.full = true;
  for (const TensorSpec& tensor : now.schema.tensors) draft.tensors.push_back(tensor);
  return draft;
}

// Compares the digests of both; decodes nothing.
ForeignDraft delta_draft(const DescribedVersion& before, const DescribedVersion& now) {
  ForeignDraft draft;
  draft.version = now.record.manifest.version;
  draft.base = before.record.manifest.version;
  for (size_t i = 0; i < now.schema.tensors.size(); ++i) {
    const TensorSpec& tensor = now.schema.tensors[i];
    const TensorSpec* const old = find_tensor(before.schema.tensors, tensor.name);
    if (old == nullptr || *old != tensor) {
      draft.added.push_back(tensor.name);
      draft.tensors.push_back(tensor);
      continue;
    }
    const size_t at = size_t(old - before.schema.tensors.data());
    if (before.record.manifest.digests[at] != now.record.manifest.digests[i]) {
      draft.tensors.push_back(tensor);
    }
  }
  for (const TensorSpec& tensor : before.schema.tensors) {
    if (find_tensor(now.schema.tensors, tensor.name) == nullptr) {
      draft.removed.push_back(tensor.name);
    }
  }
  return draft;
}

std::string work_name(const Chain& chain, const Dialect& dialect, const Store& target) {
  Hasher hasher(DigestKind::kXxh3_128);
  hasher.update(std::string(dialect.name()) + " " + place_of(target));
  return chain.run() + "-" + hasher.finish().hex().substr(0, 8);
}

}  // namespace

struct Exporter::Impl {
  Impl(const Chain& chain_, const Dialect& dialect_, std::shared_ptr<Store> target_,
       ExportOptions options_)
      : chain(chain_),
        dialect(dialect_),
        target(std::move(target_)),
        options(std::move(options_)),
        work(chain, options.work / work_name(chain, dialect, *target), options.memory_bytes,
             options.threads, options.progress) {}

  const Chain chain;
  const Dialect& dialect;
  const std::shared_ptr<Store> target;
  const ExportOptions options;
  ExportWork work;
  uint64_t first = 0, wanted = 0;  // where the range begins; the next version
  bool opened = false;
  uint64_t num_skipped = 0;

  Result<std::optional<ExportedVersion>> next();
  bool done() const { return opened && options.range.to && wanted > *options.range.to; }

 private:
  Result<bool> begin();
  Status check_last();
  Result<ExportedVersion> export_one(bool base_there);
  Status write(const DescribedVersion* before, const DescribedVersion& now, ForeignDraft draft);
  ForeignOptions how() const;
};

// False if the chain is still empty.
Result<bool> Exporter::Impl::begin() {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> own, chain.versions());
  if (own.empty()) return false;
  // Readers of version 1 begin with version 0, which is their checkpoint. If the chain begins
  // later, they need its first version.
  first = options.range.from.value_or(own.front() == 0 ? 1 : own.front());
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> there, dialect.versions(*target));
  DW_RETURN_IF_ERROR(check_target(chain, dialect, *target, there));
  wanted = first;
  opened = true;
  return true;
}

Result<std::optional<ExportedVersion>> Exporter::Impl::next() {
  const bool was_open = opened;
  if (!opened) {
    DW_ASSIGN_OR_RETURN(const bool begun, begin());
    if (!begun) return std::optional<ExportedVersion>();
  }
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> there, dialect.versions(*target));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  for (; !done() && std::ranges::binary_search(there, wanted); ++wanted) ++num_skipped;
  if (!was_open && num_skipped != 0 && head && wanted - 1 <= *head) {
    DW_RETURN_IF_ERROR(check_last());
  }
  if (done() || !head || wanted > *head) return std::optional<ExportedVersion>();
  const bool base_there = wanted > 0 && std::ranges::binary_search(there, wanted - 1);
  DW_ASSIGN_OR_RETURN(ExportedVersion exported, export_one(base_there));
  ++wanted;
  return std::optional(std::move(exported));
}

// Checks that the target's newest version is the chain's. Before the target is rejected, rebuilds
// the model in the work folder, which may be damaged.
Status Exporter::Impl::check_last() {
  DW_ASSIGN_OR_RETURN(const auto last, dialect.open(*target, wanted - 1));
  DW_ASSIGN_OR_RETURN(const Checkpoint* held, work.bring_to(wanted - 1));
  Status status = check_exported(*last, *held, *target, work.pool());
  if (status.ok()) return status;
  DW_RETURN_IF_ERROR(work.discard());
  DW_ASSIGN_OR_RETURN(held, work.bring_to(wanted - 1));
  return check_exported(*last, *held, *target, work.pool());
}

Result<ExportedVersion> Exporter::Impl::export_one(bool base_there) {
  const PublishClock clock;
  DW_ASSIGN_OR_RETURN(const DescribedVersion now, describe_version(chain, wanted));
  ExportedVersion exported;
  const bool begins = wanted == first && !base_there;
  DW_ASSIGN_OR_RETURN(const bool usual, dialect.wants_whole(*target, wanted, how()));
  // A range that begins in the middle begins with a full version, unless an encoding of deltas was
  // requested.
  const bool whole_first = begins && wanted != 1 && options.encoding.empty();
  if (options.full || wanted == 0 || usual || whole_first) {
    DW_RETURN_IF_ERROR(write(nullptr, now, full_draft(now)));
  } else {
    DW_ASSIGN_OR_RETURN(const DescribedVersion before, describe_version(chain, wanted - 1));
    DW_RETURN_IF_ERROR(write(&before, now, delta_draft(before, now)));
    if (begins) {
      const std::string base = std::to_string(wanted - 1);
      exported.note = "readers begin with version " + base + " of " + chain.store().url();
    }
  }
  DW_ASSIGN_OR_RETURN(const auto made, dialect.open(*target, wanted));
  exported.target = summary_of(dialect, made->info(), false);
  exported.seconds = clock.now();
  return exported;
}

ForeignOptions Exporter::Impl::how() const {
  ForeignOptions how;
  how.encoding = options.encoding;
  how.checksum = options.checksum;
  how.buffer_bytes = options.buffer_bytes;
  how.anchor_every = options.anchor_every.value_or(how.anchor_every);
  return how;
}

Status Exporter::Impl::write(const DescribedVersion* before, const DescribedVersion& now,
                             ForeignDraft draft) {
  for (const TensorSpec& tensor : now.schema.tensors) {
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(tensor.shape));
    draft.model_elements += elements;
  }
  DW_ASSIGN_OR_RETURN(const auto writer, dialect.create(target, draft, how()));
  DW_RETURN_IF_ERROR(mark_target(chain, dialect, *target));
  std::vector<std::string> names;
  for (const TensorSpec& spec : draft.tensors) names.push_back(spec.name);
  DW_ASSIGN_OR_RETURN(const ExportWork::Step step, work.step(before, now, names));
  DW_SYNC_POINT("export: model at the version");
  uint64_t done = 0, total = 0;
  for (const std::string& name : names) total += step.now->find(name)->view.bytes.size();
  for (size_t i = 0; i < draft.tensors.size(); ++i) {
    const Bytes contents = step.now->find(names[i])->view.bytes;
    const Bytes old = before == nullptr ? Bytes() : Bytes(step.old_bytes[i]);
    DW_RETURN_IF_ERROR(writer->add(draft.tensors[i], old, contents, work.pool()));
    done += contents.size();
    if (options.progress && !options.progress(done, total)) return cancelled("stopped on request");
  }
  DW_RETURN_IF_ERROR(step.now->check_whole());
  DW_SYNC_POINT("export: before the version appears");
  DW_RETURN_IF_ERROR(writer->finish());
  DW_SYNC_POINT("export: version is there");
  return {};
}

Result<Exporter> Exporter::open(const Chain& chain, std::shared_ptr<Store> target,
                                ExportOptions options) {
  DW_ASSIGN_OR_RETURN(const Dialect* dialect, require_dialect(options.dialect));
  if (options.work.empty()) return invalid_argument("an export needs a work folder");
  const BridgeRange& range = options.range;
  if (range.from && range.to && *range.from > *range.to) {
    return invalid_argument("from version " + std::to_string(*range.from) + " to version " +
                            std::to_string(*range.to) + ": the last version is below the first");
  }
  return Exporter(std::make_unique<Impl>(chain, *dialect, std::move(target), std::move(options)));
}

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exporter::~Exporter() = default;
Exporter::Exporter(Exporter&&) noexcept = default;
Exporter& Exporter::operator=(Exporter&&) noexcept = default;

Result<std::optional<ExportedVersion>> Exporter::next() {
  return guard_memory("exporting", [&] { return impl_->next(); });
}
bool Exporter::done() const noexcept { return impl_->done(); }
uint64_t Exporter::num_skipped() const noexcept { return impl_->num_skipped; }
}  // namespace deltawire
