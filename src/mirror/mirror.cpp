#include "deltawire/mirror.h"

#include "base/folder.h"
#include "base/process.h"
#include "chain/head.h"
#include "mirror/impl.h"

namespace deltawire {
namespace {

// Gives up, for now, on a source that is pruned again and again during the copy.
constexpr int kMostPlans = 8;
constexpr size_t kMirrorIdDigits = 16;

bool is_one_store(const Store& a, const Store& b) {
  if (&a == &b) return true;
  std::error_code error;
  const std::string left = a.local_folder(), right = b.local_folder();
  if (left.empty() || right.empty()) return false;
  return std::filesystem::equivalent(left, right, error) && !error;
}

}  // namespace

// ---- before anything is copied

Status Mirror::Impl::begin() {
  if (far) return {};
  DW_RETURN_IF_ERROR(open_far());
  Status status = check_history();
  if (!status.ok()) far.reset();
  return status;
}

Status Mirror::Impl::open_far() {
  DW_RETURN_IF_ERROR(make_work_folder());
  DW_ASSIGN_OR_RETURN(FarEnd opened, FarEnd::open(source, store, options.single_writer));
  far.emplace(std::move(opened));
  return {};
}

// Checks that the source has the same versions as the mirror.
Status Mirror::Impl::check_history() {
  last_names.clear();
  DW_ASSIGN_OR_RETURN(last, far->chain().head());
  DW_ASSIGN_OR_RETURN(head, source.head());
  if (!last) return {};
  DW_ASSIGN_OR_RETURN(const ReadVersion ours, read_whole_version(far->chain(), *last));
  last_digest = ours.record.digest;
  if (!head || *head < *last) {
    return not_found(store->url() + ": holds version " + std::to_string(*last) + ", but " +
                     source.store().url() + " ends " +
                     (head ? "with version " + std::to_string(*head) : "before its first") +
                     ": the mirror is ahead of its source, which has lost versions or is behind");
  }
  const Result<std::string> theirs = source.store().get(manifest_name(*last), kMaxManifestBytes);
  if (!theirs.ok() && theirs.status().code() == Code::kNotFound) return {};  // pruned in the source
  DW_RETURN_IF_ERROR(Status(theirs.status()));
  if (*theirs == ours.text) return {};
  return base_mismatch(store->url() + ": version " + std::to_string(*last) + " is manifest " +
                       last_digest.hex() + ", but manifest " + record_digest(*theirs).hex() +
                       " in " + source.store().url() +
                       ": mirror and source have different histories");
}

Status Mirror::Impl::make_work_folder() {
  if (!folder.empty()) return {};
  if (options.work.empty()) {
    DW_ASSIGN_OR_RETURN(WorkFolder made, WorkFolder::make({}));
    folder = temporary.emplace(std::move(made)).path();
    return {};
  }
  DW_RETURN_IF_ERROR(make_folder(options.work));
  remove_stale_temporaries(options.work / "object");  // left by killed mirrors
  folder = options.work;
  return {};
}

void Mirror::Impl::make_beat() {
  if (beat || !options.heartbeat) return;
  const std::string name =
      options.name.empty() ? host_name() + ":mirror:" + store->url() : options.name;
  beat = std::make_unique<ReplicaBeat>(source.shared_store(), name,
                                       record_digest(name).hex().substr(0, kMirrorIdDigits));
}

ObjectCopier Mirror::Impl::copier(bool verify) const {
  return {source.store(), *store, {folder, options.transfers, verify, options.progress}};
}

// ---- which version is next

// The next version to copy, with an anchor if the mirror does not hold its predecessor. None: there
// is no new version yet.
Result<std::optional<StartingPoint>> Mirror::Impl::plan() {
  const auto go_on = [&]() -> Result<std::optional<StartingPoint>> {
    DW_ASSIGN_OR_RETURN(const bool there, has_version(source.store(), *last + 1));
    return there ? std::optional(StartingPoint{*last + 1, {}}) : std::nullopt;
  };
  if (last) {
    DW_ASSIGN_OR_RETURN(const auto newest, source.newest_after(head.value_or(*last)));
    head = newest.version;
    if (!head || *head < *last) {
      far.reset();  // begin() reports what is wrong
      DW_RETURN_IF_ERROR(begin());
      return std::optional<StartingPoint>();  // a temporary condition; the next call plans
    }
    const bool leaves_out = options.since && *options.since > *last + 1;
    if (*head == *last && !leaves_out) return std::optional<StartingPoint>();
    if (!leaves_out) {
      DW_ASSIGN_OR_RETURN(const auto next, go_on());
      if (next) return next;
    }
  } else {
    DW_ASSIGN_OR_RETURN(head, source.head());
    if (!head && !options.since) return std::optional<StartingPoint>();
  }
  Result<StartingPoint> start = starting_point(source, last, options);
  if (start.ok()) return std::optional(*start);
  // No version after `since` is stored whole: copy the versions before it, too.
  if (last && options.since && start.status().code() == Code::kNotFound && *last < *head) {
    DW_ASSIGN_OR_RETURN(const auto next, go_on());
    if (next) return next;
  }
  return start.status();
}

Result<std::optional<Mirrored>> Mirror::Impl::next() {
  for (int attempt = 0; attempt < kMostPlans; ++attempt) {
    DW_RETURN_IF_ERROR(begin());
    DW_ASSIGN_OR_RETURN(const std::optional<StartingPoint> version, plan());
    if (version) {
      DW_ASSIGN_OR_RETURN(auto copied, copy_version(*version));
      if (copied) return copied;
      continue;
    }
    make_beat();
    if (beat && last) beat->holds(held(), {});
    while (true) {
      DW_ASSIGN_OR_RETURN(const auto hop, hops.next(source, far->chain()));
      if (!hop) return std::optional<Mirrored>();
      DW_ASSIGN_OR_RETURN(auto copied, copy_hop(*hop));
      if (copied) return copied;
      // A version has arrived, or the hop is not usable.
      DW_ASSIGN_OR_RETURN(const bool newer, has_version(source.store(), last.value_or(0) + 1));
      if (newer) break;
    }
  }
  return unavailable(source.store().url() + ": versions were removed faster than they were copied");
}

// ---- what programs see

Mirror::Mirror(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Mirror::~Mirror() = default;
Mirror::Mirror(Mirror&&) noexcept = default;
Mirror& Mirror::operator=(Mirror&&) noexcept = default;

Result<Mirror> Mirror::open(const Chain& source, std::shared_ptr<Store> mirror,
                            MirrorOptions options) {
  if (is_one_store(source.store(), *mirror)) {
    return invalid_argument(mirror->url() + ": source and mirror are one store");
  }
  if (options.all && options.since) {
    return invalid_argument("a mirror begins with everything or since a version, not both");
  }
  if (options.transfers == 0) return invalid_argument("a mirror needs at least one transfer");
  if (options.keep && options.keep->keep == 0) {
    return invalid_argument("a mirror keeps at least one version");
  }
  return Mirror(std::make_unique<Impl>(source, std::move(mirror), std::move(options)));
}

Result<std::optional<Mirrored>> Mirror::next() { return impl_->next(); }
Result<MirrorRepair> Mirror::repair() { return impl_->repair(); }
const std::string& Mirror::run() const noexcept { return impl_->source.run(); }
std::optional<uint64_t> Mirror::version() const noexcept { return impl_->last; }
std::optional<uint64_t> Mirror::head() const noexcept { return impl_->head; }

}  // namespace deltawire
