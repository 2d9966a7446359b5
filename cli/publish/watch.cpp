#include <fmt/format.h>

#include <algorithm>

#include "base/folder.h"
#include "base/log.h"
#include "cli/metrics.h"
#include "cli/next_step.h"
#include "cli/publish/publish.h"
#include "publish/folder_watch.h"

namespace deltawire::cli {
namespace {

constexpr double kLongestPause = 60;

// Failures that a retry cannot fix.
bool is_final(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kInternal:
      return true;
    default:
      return false;
  }
}

class Watcher {
 public:
  Watcher(const Context& context, PublishVerbOptions& options, FolderWatch folder)
      : context_(context), options_(options), folder_(std::move(folder)) {
    options_.publish.progress = [this](uint64_t done, uint64_t total) {
      return progress_ ? progress_(done, total) : !was_interrupted();
    };
  }

  Status run() {
    double pause = options_.interval;
    while (!was_interrupted()) {
      const Status status = round();
      if (status.code() == Code::kCancelled && was_interrupted()) return {};
      if (status.ok()) {
        pause = options_.interval;
        if (options_.once && !folder_.expects_more()) return {};
        folder_.wait(options_.interval);
        continue;
      }
      record_failure("publish", status);
      if (is_final(status) || options_.once) return status;
      // After any failure, the state of the chain decides how to continue.
      publisher_.reset();
      log_retry("publish.failed", status, "publish", pause);
      sleep_seconds(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
    return {};
  }

 private:
  Status round() {
    ProgressBar bar(context_, "publish");
    progress_ = bar.callback();
    if (!publisher_) {
      DW_ASSIGN_OR_RETURN(Publisher opened, open_publisher(&options_));
      publisher_.emplace(std::move(opened));
      if (!publisher_->run().empty()) DW_RETURN_IF_ERROR(remember_by_run());
    }
    DW_ASSIGN_OR_RETURN(const auto ready, folder_.ready());
    for (const FolderWatch::Skipped& skipped : folder_.newly_skipped()) {
      log_event(LogLevel::kWarning, "watch.skipped",
                {{"path", skipped.path.string()}, {"reason", skipped.reason}});
    }
    for (const std::filesystem::path& checkpoint : ready) {
      DW_ASSIGN_OR_RETURN(PublishReport report, publisher_->publish_checkpoint(checkpoint));
      options_.publish.accept_loss = false;  // applies to one loss only
      record_publish(report);
      if (!remembers_) DW_RETURN_IF_ERROR(remember_by_run());
      DW_RETURN_IF_ERROR(folder_.remember(checkpoint));
      const auto held = wait_for_holders(options_, &report);
      Json json = with_path(report, checkpoint);
      if (held) json["holders"] = to_json(*held);
      context_.emit(json);
      context_.say(checkpoint.filename().string() + "  " + one_line(report) +
                   (held ? "; " + one_line(*held) : ""));
      flush_out();
      for (const std::string& warning : report.warnings) {
        log_event(LogLevel::kWarning, "publish.warning", {{"warning", warning}});
      }
      if (!report.note.empty()) {
        log_event(LogLevel::kInfo, "publish.note", {{"note", report.note}});
      }
      if (report.dense_float32) {
        log_event(LogLevel::kWarning, "publish.hint", {{"hint", std::string(kFloat32Hint)}});
      }
      if (was_interrupted()) break;
    }
    progress_ = nullptr;
    return {};
  }

  // The file is stored beside the snapshot, which also records the progress of this run.
  Status remember_by_run() {
    if (remembers_) return {};
    const std::filesystem::path folder = options_.snapshot_of(publisher_->run());
    DW_RETURN_IF_ERROR(make_folder(folder));
    remembers_ = true;
    return folder_.remember_in(folder / "watched.json");
  }

  static Json with_path(const PublishReport& report, const std::filesystem::path& checkpoint) {
    Json json = to_json(report);
    json["checkpoint"] = checkpoint.string();
    return json;
  }

  const Context& context_;
  PublishVerbOptions& options_;
  FolderWatch folder_;
  std::optional<Publisher> publisher_;
  Progress progress_;
  bool remembers_ = false;
};

}  // namespace

int watch(const Context& context, PublishVerbOptions& options) {
  const auto metrics_server = start_metrics(options.metrics);
  if (!metrics_server.ok()) return context.fail(metrics_server.status());
  Result<FolderWatch> folder = FolderWatch::open(options.checkpoint, options.settle);
  if (!folder.ok()) return context.fail(folder.status());
  context.print("watching  {} for checkpoints, to publish to {}", options.checkpoint,
                options.store);
  if (*metrics_server) {
    context.print("metrics   on {} port {}", options.metrics.address, (*metrics_server)->port());
  }
  flush_out();
  const Status status = Watcher(context, options, std::move(*folder)).run();
  return context.finish(status);
}

}  // namespace deltawire::cli
