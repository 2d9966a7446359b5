#include "maintain/walk_parts.h"

#include "base/folder.h"
#include "base/guard.h"
#include "format/checkpoint_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;

Result<ChainState> ChainState::open(const Chain& chain, fs::path folder,
                                    const WorkOptions& options) {
  ReplicaOptions replica;
  replica.limits.threads = options.threads;
  replica.heartbeat = false;
  replica.accept = {.trust = chain.keys().trust, .run = chain.run()};
  replica.progress = options.progress;
  DW_RETURN_IF_ERROR(make_folder(folder));
  DW_ASSIGN_OR_RETURN(Replica opened,
                      Replica::open(chain.shared_store(), folder, std::move(replica)));
  return ChainState(std::move(opened));
}

Result<const Checkpoint*> ChainState::bring_to(uint64_t version) {
  checkpoint_.reset();
  DW_ASSIGN_OR_RETURN(const PullReport report, replica_.pull(version));
  DW_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::open(report.path));
  return &*checkpoint_;
}

WalkStep WalkParts::fetch(const PartRef& part, FetchedObject* object, bool whole) {
  done_ += part.size_bytes;
  if (progress_ && !progress_(done_, done_)) return FailedStep{cancelled("stopped on request")};
  Result<FetchedObject> fetched = whole ? fetch_checkpoint_file(store_, part, allocate_, nullptr)
                                        : fetch_object(store_, part, allocate_);
  if (!fetched.ok()) return FailedStep{fetched.status(), true};
  *object = std::move(*fetched);
  return {};
}

WalkStep WalkParts::add_files(const std::vector<PartRef>& parts, MemoryState* state) {
  for (const PartRef& part : parts) {
    if (!plain_file_name(part.name).ends_with(kSafetensorsSuffix)) continue;
    FetchedObject file;
    if (WalkStep step = fetch(part, &file, true)) return step;
    Status status = add_checkpoint_file(file, state).at(part.name);
    if (!status.ok()) return FailedStep{std::move(status), true};
  }
  return {};
}

WalkStep WalkParts::apply_parts(const std::vector<PartRef>& parts, TensorNames* touched,
                                const std::function<Status(const PayloadView&)>& apply,
                                const std::function<void(const std::string& tensor)>& removed) {
  for (const PartRef& part : parts) {
    FetchedObject file;
    if (WalkStep step = fetch(part, &file)) return step;
    const Result<DeltaPart> parsed = parse_part(file.bytes);
    if (!parsed.ok()) return FailedStep{parsed.status(), true};
    for (const PayloadView& view : parsed->entries) {
      touched->insert(view.entry.tensor);
      Status status = guard_memory("patching", [&]() -> Status { return apply(view); });
      if (!status.ok()) {
        return FailedStep{std::move(status).at(part.name + ", tensor " + quote(view.entry.tensor))};
      }
    }
    for (const std::string& name : parsed->info.removed) removed(name);
  }
  return {};
}

}  // namespace deltawire
