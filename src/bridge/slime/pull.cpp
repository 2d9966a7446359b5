#include "bridge/slime/pull.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/command.h"
#include "base/folder.h"
#include "base/log.h"
#include "bridge/slime/held.h"
#include "bridge/slime/journal.h"
#include "bridge/slime/local.h"
#include "bridge/slime/source.h"
#include "bridge/slime/steps.h"
#include "format/checkpoint_files.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

// A step that another start may do better: what is held is not what the source's deltas expect. Of
// other failures (a disk, a file of the source that is not there) it would fail again.
bool is_about_bytes(const Status& status) {
  return status.code() == Code::kBaseMismatch || status.code() == Code::kCorruption ||
         status.code() == Code::kInvalidArgument;
}

// Whether a file may be written to where it is: its bytes are nobody else's.
bool is_own_file(const fs::path& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
}

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return !a.empty() && fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error) && !error;
}

Status check_request(const SlimePullRequest& request, const fs::path& base) {
  for (const fs::path& path : {request.local, request.source}) {
    if (!path.is_absolute()) {
      return invalid_argument("\"" + path.string() + "\": expected an absolute path");
    }
  }
  if (same_folder(request.local, request.source)) {
    return invalid_argument(request.local.string() +
                            ": is both the local folder and the source of versions");
  }
  if (same_folder(base, request.local)) {
    return invalid_argument(request.local.string() +
                            ": is both the local folder and the base, which version 0 has to "
                            "remain; name another folder, or leave the base out");
  }
  if (is_below(request.local, {request.source})) {
    return invalid_argument(request.local.string() + ": lies inside the source of versions, " +
                            request.source.string());
  }
  return {};
}

}  // namespace

struct SlimePulled::Impl {
  Impl(const SlimePullRequest& the_request, const SlimePullOptions& the_options)
      : request(the_request),
        options(the_options),
        local{the_request.local},
        source(the_request.source, the_options.roots, the_options.dialect),
        pool(the_options.threads) {}

  const SlimePullRequest request;
  const SlimePullOptions options;
  const SlimeLocal local;
  SlimeSource source;
  ThreadPool pool;
  std::optional<SlimeLock> lock;
  std::optional<SlimeStep> step;
  SlimePullReport report;

  Status run();

 private:
  SlimeWork work() { return {&pool, options.check, options.chunk_bytes}; }
  const fs::path& base() const { return options.base; }
  Status check_source();
  Status check_before_making();
  Result<SlimeWay> way_from_nothing(const Status& why);
  Status finish_earlier_step();
  Status bring(const SlimeHeld& held);
  Status note(const SlimeHeld& held);
  Status stay(const SlimeHeld& held);
  Status go_on(const SlimeHeld& held);
  Status patch(const SlimeHeld& held, const SlimeWay& way);
  Status rebuild(const Status& why);
  Status replace_files(const fs::path& from, const SlimeWay& way, bool with_sides,
                       const std::string& start_identity);
  Status carry_out(SlimeJournal journal);
  SlimeRecord next_record(const std::string& identity) const;
};

SlimeRecord SlimePulled::Impl::next_record(const std::string& identity) const {
  return {request.target, (request.target == 0 ? base() : source.folder()).string(), identity, {}};
}

Status SlimePulled::Impl::check_source() {
  if (request.target == 0 || options.pre_read_hook.empty()) return {};
  CommandOptions hook;
  hook.environment = {{"DELTAWIRE_SOURCE_DIR", source.folder().string()},
                      {"DELTAWIRE_TARGET_VERSION", std::to_string(request.target)}};
  hook.timeout_seconds = options.hook_timeout_seconds;
  if (options.check) hook.cancelled = [this] { return !options.check().ok(); };
  const Status done = run_command(options.pre_read_hook, hook).at("the hook before reading");
  // Who ended it says why: the time is up, or somebody asked.
  if (!done.ok() && options.check) DW_RETURN_IF_ERROR(options.check());
  return done;
}

Status SlimePulled::Impl::finish_earlier_step() {
  DW_RETURN_IF_ERROR(clear_slime_work(local));
  DW_ASSIGN_OR_RETURN(const std::optional<SlimeJournal> journal, read_slime_journal(local));
  if (!journal) return {};
  const std::optional<std::string> taken_over = find_taken_over(local, *journal);
  Result<SlimeStep> finished = taken_over ? Result<SlimeStep>(base_mismatch(*taken_over))
                                          : SlimeStep::carry_out(local, *journal, &pool);
  if (!finished.ok() && !is_about_bytes(finished.status()) &&
      finished.status().code() != Code::kNotFound) {
    return finished.status();
  }
  report.recovered = finished.ok();
  if (finished.ok()) return finished->settle(&pool);
  // Its files are gone or not those that it was made for. Either somebody else gave the folder a
  // version, or it has none, and our record says that it had one: nobody takes it for a base.
  log_event(LogLevel::kWarning, "slime.journal_dropped",
            {{"folder", local.root.string()}, {"error", finished.status()}});
  DW_RETURN_IF_ERROR(rename_path(local.journal(), local.old_journal()));
  return remove_tree(local.old_journal());
}

Status SlimePulled::Impl::carry_out(SlimeJournal journal) {
  // From here on the folder is one of ours, whatever becomes of it: see look_at_new_folder().
  if (!read_slime_record(local)) {
    DW_RETURN_IF_ERROR(write_slime_record(local, SlimeRecord{}));
  }
  DW_RETURN_IF_ERROR(commit_slime_journal(local, journal));
  DW_ASSIGN_OR_RETURN(SlimeStep done, SlimeStep::carry_out(local, journal, &pool));
  step.emplace(std::move(done));
  report.changed = true;
  return {};
}

Status SlimePulled::Impl::replace_files(const fs::path& from, const SlimeWay& way, bool with_sides,
                                        const std::string& start_identity) {
  SlimeJournal journal;
  DW_RETURN_IF_ERROR(make_folder(local.new_journal()));
  DW_ASSIGN_OR_RETURN(journal.files, write_slime_files(from, way.deltas, with_sides,
                                                       local.new_journal() / "files", work()));
  std::error_code error;
  for (fs::directory_iterator it(local.root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool kept =
        std::find(journal.files.begin(), journal.files.end(), name) != journal.files.end();
    if (is_weights_file(name) && !kept) journal.remove.push_back(name);
  }
  if (error) return io_error(local.root.string() + ": cannot list: " + error.message());
  std::vector<std::string> weights;
  std::copy_if(journal.files.begin(), journal.files.end(), std::back_inserter(weights),
               [](const std::string& name) { return is_weights_file(name); });
  DW_ASSIGN_OR_RETURN(journal.stamps, stamp_files(local.new_journal() / "files", weights));
  journal.next = next_record(way.deltas.empty() ? start_identity : way.deltas.back().identity);
  report.num_deltas = way.deltas.size();
  return carry_out(std::move(journal));
}

// A request that cannot be met leaves no folder and no lock where nothing was pulled to before. A
// hook may be what makes the versions appear: then nothing is known yet.
Status SlimePulled::Impl::check_before_making() {
  std::error_code error;
  if (fs::exists(local.own(), error) || !options.pre_read_hook.empty()) return {};
  if (!fs::exists(local.root, error)) return way_from_nothing({}).status();
  return request.target == 0 ? Status() : source.open(request.target).status();
}

Result<SlimeWay> SlimePulled::Impl::way_from_nothing(const Status& why) {
  Result<SlimeWay> way = source.way(0, request.target);
  if (!way.ok()) {
    const std::string also = why.ok() ? "" : "; " + why.message();
    return Status(way.status().code(), way.status().message() + also);
  }
  if (!way->whole && base().empty()) {
    const std::string way_out = source.folder().string() + " has no whole version up to " +
                                std::to_string(request.target) +
                                ", and no base was given to begin with";
    if (why.ok()) return not_found(local.root.string() + ": holds no checkpoint; " + way_out);
    return Status(why.code(), why.message() + "; " + way_out);
  }
  return way;
}

Status SlimePulled::Impl::rebuild(const Status& why) {
  DW_ASSIGN_OR_RETURN(const SlimeWay way, way_from_nothing(why));
  report.rebuilt = true;
  if (!why.ok()) {
    report.reason = why.to_string();
    log_event(LogLevel::kWarning, "slime.rebuild",
              {{"folder", local.root.string()}, {"version", request.target}, {"reason", why}});
  }
  DW_RETURN_IF_ERROR(clear_slime_work(local));
  if (way.whole) return replace_files(way.whole->folder, way, true, way.whole->identity);
  DW_ASSIGN_OR_RETURN(const std::string identity, identity_of_checkpoint(base()));
  return replace_files(base(), way, fs::is_directory(base()), identity);
}

Status SlimePulled::Impl::patch(const SlimeHeld& held, const SlimeWay& way) {
  DW_ASSIGN_OR_RETURN(const auto touched,
                      touched_tensors(*held.checkpoint, way.deltas, &report.num_tied));
  report.num_deltas = way.deltas.size();
  report.num_tensors = touched.size();
  for (const CheckpointFile& file : held.checkpoint->files()) {
    if (!is_own_file(file.path)) return replace_files(local.root, way, false, {});
  }
  SlimeJournal journal;
  DW_RETURN_IF_ERROR(make_folder(local.new_journal()));
  DW_ASSIGN_OR_RETURN(journal.redo, write_slime_redo(*held.checkpoint, way.deltas, touched,
                                                     local.new_journal() / "redo", work()));
  DW_ASSIGN_OR_RETURN(journal.stamps, stamp_files(local.root, weights_of(*held.checkpoint)));
  journal.from = held.version;
  journal.next = next_record(way.deltas.back().identity);
  return carry_out(std::move(journal));
}

// What was proven need not be proven again. A folder without a state gets one before anything else:
// a call that dies later must not leave a record alone.
Status SlimePulled::Impl::note(const SlimeHeld& held) {
  if (!held.proven) return {};
  const std::optional<SlimeRecord> record = read_slime_record(local);
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> version, read_slime_version(local));
  if (!version) DW_RETURN_IF_ERROR(write_slime_version(local, *held.version));
  if (record && record->version == *held.version && record->identity == held.identity &&
      !find_edited(local.root, record->files)) {
    return {};
  }
  SlimeRecord now{
      *held.version, (*held.version == 0 ? base() : source.folder()).string(), held.identity, {}};
  DW_ASSIGN_OR_RETURN(now.files, stamp_files(local.root, weights_of(*held.checkpoint)));
  return write_slime_record(local, now);
}

// The folder says that it has the version.
Status SlimePulled::Impl::stay(const SlimeHeld& held) {
  if (request.target != 0) DW_RETURN_IF_ERROR(source.open(request.target).status());
  if (!held.proven) {
    return rebuild(base_mismatch(local.root.string() + ": nothing proves that it is version " +
                                 std::to_string(request.target)));
  }
  return note(held);
}

Status SlimePulled::Impl::go_on(const SlimeHeld& held) {
  DW_ASSIGN_OR_RETURN(const SlimeWay way, source.way(*held.version, request.target));
  if (way.whole) return rebuild({});
  Status patched = patch(held, way);
  if (patched.ok() || step || !is_about_bytes(patched)) return patched;
  std::error_code error;
  if (fs::exists(local.journal(), error)) return patched;  // committed: it is to be finished
  // It is this folder, or the source. Where another start leads to the version, it was the folder.
  const Result<SlimeWay> other = source.way(0, request.target);
  if (!other.ok() || (!other->whole && base().empty())) return patched;
  return rebuild(patched);
}

Status SlimePulled::Impl::bring(const SlimeHeld& held) {
  if (!held.distrust.ok() || !held.version) return rebuild(held.distrust);
  report.from = held.version;
  if (*held.version == request.target) return stay(held);
  if (*held.version < request.target) {
    DW_RETURN_IF_ERROR(note(held));
    return go_on(held);
  }
  return rebuild(base_mismatch(local.root.string() + ": holds version " +
                               std::to_string(*held.version) + ", and deltas do not lead back to " +
                               std::to_string(request.target)));
}

Status SlimePulled::Impl::run() {
  const auto begin = Clock::now();
  DW_RETURN_IF_ERROR(check_request(request, options.base));
  DW_RETURN_IF_ERROR(check_before_making());
  DW_ASSIGN_OR_RETURN(SlimeLock taken, SlimeLock::take(local, options.check));
  lock.emplace(std::move(taken));
  for (const fs::path& folder : {local.root, local.own()}) {
    DW_RETURN_IF_ERROR(source.check_folder(folder));
  }
  DW_RETURN_IF_ERROR(check_source());
  DW_RETURN_IF_ERROR(finish_earlier_step());
  DW_ASSIGN_OR_RETURN(const SlimeHeld held, look_at_slime_local(local, &source, base(), work()));
  report.version = request.target;
  Status status = bring(held);
  if (!status.ok() && !step) (void)clear_slime_work(local);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return status;
}

SlimePulled::SlimePulled(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SlimePulled::~SlimePulled() = default;
SlimePulled::SlimePulled(SlimePulled&&) noexcept = default;

const SlimePullReport& SlimePulled::report() const noexcept { return impl_->report; }

Status SlimePulled::settle() {
  if (!impl_->step) return {};
  DW_RETURN_IF_ERROR(impl_->step->settle(&impl_->pool));
  impl_->step.reset();
  return {};
}

Result<SlimePulled> slime_pull(const SlimePullRequest& request, const SlimePullOptions& options) {
  auto impl = std::make_unique<SlimePulled::Impl>(request, options);
  DW_RETURN_IF_ERROR(impl->run());
  return SlimePulled(std::move(impl));
}

}  // namespace deltawire
