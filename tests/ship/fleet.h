// A trainer that ships, and replicas that follow it on threads of their own.
#pragma once

#include <condition_variable>

#include "deltawire/publisher.h"
#include "replica/follow_watch.h"
#include "ship/ship.h"
#include "store/memory_store.h"
#include "support/live_model.h"
#include "test_files.h"

namespace deltawire::testing {

inline constexpr double kPatience = 60;  // no test waits so long for anything but a failure

// Publishes steps of a model to a store that is shipped.
class Trainer {
 public:
  explicit Trainer(ShipOptions how = quick(20), PublishOptions publish = {},
                   std::shared_ptr<Store> store = std::make_shared<MemoryStore>("trainer"))
      : inner(std::move(store)), model(Model::make(40)) {
    shipper = must(Shipper::listen(inner, std::move(how)));
    publish.limits.threads = 2;
    publisher.emplace(must(Publisher::open(shipper->store(), publish)));
  }

  static ShipOptions quick(double timeout_seconds = 20) {
    ShipOptions options{
        .secret = "between us", .timeout_seconds = timeout_seconds, .answer_seconds = 20};
    options.merge_after = 0;
    return options;
  }

  // The next version; what became of it at the replicas.
  ShipReport step(double density = 0.02) {
    if (published++ != 0) model.step(density);
    must(publisher->publish(model.views()));
    return shipper->settle();
  }

  std::shared_ptr<Store> inner;
  Model model;
  std::shared_ptr<Shipper> shipper;
  std::optional<Publisher> publisher;
  uint64_t published = 0;
};

inline JoinOptions joining(const std::string& address, const std::string& name = {}) {
  JoinOptions options;
  options.hub = address;
  options.secret = "between us";
  options.timeout_seconds = 20;
  if (!name.empty()) options.name = name;
  return options;
}

// Follows until it is destroyed.
class FollowingReplica {
 public:
  FollowingReplica(JoinOptions how, const Model& like, Accept accept = {})
      : memory(like), how_(std::move(how)), accept_(std::move(accept)) {
    thread_ = std::thread([this] { run(); });
  }
  ~FollowingReplica() {
    stop_ = true;
    thread_.join();
  }

  bool wait_for_version(uint64_t version) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(kPatience),
                             [&] { return version_ && *version_ >= version; });
  }
  std::string error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  std::vector<PullReport> pulls() {
    const std::lock_guard lock(mutex_);
    return pulls_;
  }

  Memory memory;
  std::atomic<uint64_t> ahead = 0;  // tensors that were decoded before their commit

 private:
  void run() {
    auto store = join_ship(how_);
    if (!store.ok()) return note(store.status());
    FollowWatch watch(**store);
    std::optional<TensorReplica> replica;
    while (!stop_) {
      const Status status = [&]() -> Status {
        if (!replica) {
          TensorReplicaOptions options;
          options.limits.threads = 2;
          options.name = how_.name;
          options.accept = accept_;
          DW_ASSIGN_OR_RETURN(TensorReplica opened,
                              TensorReplica::open(*store, memory.tensors, options));
          replica.emplace(std::move(opened));
        }
        DW_ASSIGN_OR_RETURN(const PullReport report, replica->pull());
        const std::lock_guard lock(mutex_);
        if (report.changed) pulls_.push_back(report);
        version_ = report.version;
        changed_.notify_all();
        return {};
      }();
      note(status);
      watch.wait(
          1, [this] { return stop_.load(); },
          [&] {
            if (replica) ahead += replica->prepare_ahead();
          });
    }
  }
  void note(const Status& status) {
    const std::lock_guard lock(mutex_);
    error_ = status.ok() ? "" : status.to_string();
  }

  const JoinOptions how_;
  const Accept accept_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<uint64_t> version_;
  std::vector<PullReport> pulls_;
  std::string error_;
  std::thread thread_;
};

}  // namespace deltawire::testing
