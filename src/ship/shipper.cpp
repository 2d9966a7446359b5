// The publisher's side: a hub, a thread for each member that answers it, one that sends, and one
// for upkeep.
#include <algorithm>
#include <map>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "carrier/backend.h"
#include "carrier/hub.h"
#include "chain/head.h"
#include "chain/heartbeat.h"
#include "ship/asks.h"
#include "ship/buckets.h"
#include "ship/object_service.h"
#include "ship/roster.h"
#include "ship/sender.h"
#include "ship/ship.h"
#include "ship/shipping_store.h"
#include "ship/upkeep.h"

namespace deltawire {
namespace {

constexpr double kLookSeconds = 0.5;  // for members that came
constexpr double kListenSeconds = 1;  // to one; then it is seen whether it is still there
constexpr double kIdleTimeouts = 4;   // two buffers, each sent twice

double shipper_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class ShipperOnHub final : public Shipper, public std::enable_shared_from_this<ShipperOnHub> {
 public:
  ShipperOnHub(std::shared_ptr<Store> inner, ShipOptions options, std::unique_ptr<Hub> hub,
               std::shared_ptr<Backend> backend, const std::optional<Identity>& head)
      : inner_(std::move(inner)),
        options_(std::move(options)),
        hub_(std::move(hub)),
        queue_(std::make_shared<BucketQueue>(options_.buffer_bytes)),
        sender_(*hub_, roster_, *queue_, std::move(backend), options_),
        upkeep_(inner_, options_),
        store_(std::make_shared<ShippingStore>(
            inner_, version_of(head), queue_,
            ShippingStore::Watcher{[this] { return !roster_.pushed().empty(); },
                                   [this](uint64_t version) { first_part(version); },
                                   [this](const Identity& version) { committed(version); }})) {
    times_.version = head;
    sending_ = std::thread([this] { sender_.run(); });
    greeting_ = std::thread([this] { greet(); });
  }

  ~ShipperOnHub() override {
    stopping_ = true;
    store_->close();
    queue_->close();
    sender_.stop();
    sending_.join();
    greeting_.join();
    for (const MemberInfo& member : hub_->members()) {
      hub_->dismiss(member.id, "the publisher has ended");
    }
    for (auto& [id, thread] : serving_) thread.join();
  }

  std::shared_ptr<Store> store() override { return {shared_from_this(), store_.get()}; }
  std::string address() const override { return hub_->address(); }

  Status wait_for(size_t num_replicas, double timeout_seconds) override {
    if (roster_.wait_for_replicas(num_replicas, timeout_seconds)) return {};
    return unavailable(std::to_string(roster_.num_replicas()) + " of " +
                       std::to_string(num_replicas) + " replicas follow " + address());
  }

  ShipReport settle() override {
    (void)queue_->wait_idle(kIdleTimeouts * options_.timeout_seconds);
    const std::optional<Identity> version = times().version;
    if (version) roster_.wait_applied(*version, options_.timeout_seconds);
    return report();
  }

  ShipReport report() const override {
    const Times when = times();
    const SentSoFar sent = sender_.sent();
    ShipReport report;
    report.version = version_of(when.version);
    report.carrier = sent.carrier;
    report.epoch = sent.epoch;
    report.bytes = sent.bytes;
    report.replicas = roster_.shipped(when.version);
    report.warnings = roster_.notes();
    for (const Shipped& one : report.replicas) {
      if (!one.error.empty()) report.warnings.push_back(one.name + ": " + one.error);
    }
    if (when.first_part != 0 && when.committed >= when.first_part) {
      const double begin = when.first_part, commit = when.committed - begin;
      report.phases.push_back({"encode", 0, commit});
      if (sent.begin) report.phases.push_back({"send", *sent.begin - begin, sent.end - begin});
      const double applied = roster_.last_applied();
      if (applied > 0) report.phases.push_back({"apply", commit, applied - begin});
    }
    return report;
  }

 private:
  struct Times {
    std::optional<Identity> version;  // committed
    double first_part = 0, committed = 0;
  };
  Times times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

  void first_part(uint64_t) {
    const std::lock_guard lock(mutex_);
    times_.first_part = shipper_clock();
  }

  void committed(const Identity& version) {
    {
      const std::lock_guard lock(mutex_);
      times_.version = version;
      times_.committed = shipper_clock();
    }
    upkeep_.committed(version.version, roster_.held_versions(version.run));
  }

  // Members that came get a thread that answers them; those of members that left are joined.
  void greet() {
    while (!stopping_) {
      (void)hub_->wait_for(serving_.size() + 1, kLookSeconds);
      for (const MemberInfo& member : hub_->members()) {
        if (serving_.contains(member.id) || stopping_) continue;
        const Result<Message> hello = Message::parse(member.hello);
        if (!hello.ok() || hello->number("ship") != kShipProtocol) {
          hub_->dismiss(member.id, "the publisher speaks ship/" + std::to_string(kShipProtocol));
          continue;
        }
        roster_.joined(member);
        serving_.emplace(member.id, std::thread([this, member] { serve(member); }));
      }
      join_ended();
    }
  }

  void join_ended() {
    std::vector<uint64_t> ended;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(ended_);
    }
    for (const uint64_t id : ended) {
      serving_.at(id).join();
      serving_.erase(id);
    }
  }

  void serve(const MemberInfo& member) {
    std::atomic<bool> gone{false};
    Asks asks([this, &gone, id = member.id](const Message& ask) {
      // Of one that is gone only what it says of itself matters.
      const bool matters = !gone || ask.text("op") == "put" || ask.text("op") == "remove";
      if (!stopping_ && matters) answer(id, ask);
    });
    while (!stopping_) {
      Result<std::string> heard = hub_->hear(member.id, kListenSeconds);
      if (heard.ok()) {
        if (take(member.id, *heard, &asks)) continue;
        hub_->dismiss(member.id, "sent a malformed message");
        gone = true;
        asks.finish();
        roster_.left(member.id, "sent a malformed message");
        break;
      }
      if (is_present(member.id)) continue;
      gone = true;
      asks.finish();
      roster_.left(member.id, heard.status().message());
      break;
    }
    const std::lock_guard lock(mutex_);
    ended_.push_back(member.id);
  }

  bool is_present(uint64_t id) const {
    const std::vector<MemberInfo> members = hub_->members();
    return std::any_of(members.begin(), members.end(),
                       [&](const MemberInfo& member) { return member.id == id; });
  }

  bool take(uint64_t id, std::string_view bytes, Asks* asks) {
    Result<Message> message = Message::parse(bytes);
    if (!message.ok()) return false;
    if (message->has("ask")) {
      asks->add(std::move(*message));
    } else if (const auto buffer = message->number("follow")) {
      roster_.follows(id, *buffer < options_.least_buffer_bytes ? 0 : *buffer);
    } else if (const auto ready = message->number("ready")) {
      roster_.answers(id, *ready);
    } else if (const auto entered = message->number("entered")) {
      roster_.answers(id, *entered, message->text("error").value_or(""));
    } else if (const auto damaged = message->text("damaged")) {
      roster_.note(id, *damaged + " arrived damaged; it was read again");
    }
    return true;
  }

  void answer(uint64_t id, const Message& ask) {
    const Message answer = answer_ask(*inner_, ask);
    const std::string name = ask.text("name").value_or("");
    if (ask.text("op") == "put" && is_heartbeat_name(name) && !answer.has("code")) {
      const Result<Heartbeat> beat = parse_heartbeat(ask.body());
      if (beat.ok()) roster_.beats(id, *beat);
    }
    roster_.sent(id, answer.body().size());
    (void)hub_->tell(id, answer.serialise(), options_.timeout_seconds);
  }

  const std::shared_ptr<Store> inner_;
  const ShipOptions options_;
  const std::unique_ptr<Hub> hub_;
  Roster roster_;
  const std::shared_ptr<BucketQueue> queue_;
  Sender sender_;
  Upkeep upkeep_;
  const std::shared_ptr<ShippingStore> store_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  Times times_;
  std::vector<uint64_t> ended_;              // threads that have ended
  std::map<uint64_t, std::thread> serving_;  // by member; greet()'s own
  std::thread sending_, greeting_;
};

}  // namespace

Result<std::shared_ptr<Shipper>> Shipper::listen(std::shared_ptr<Store> store,
                                                 ShipOptions options) {
  if (options.buffer_bytes == 0) return invalid_argument("the buffer must have a size");
  DW_RETURN_IF_ERROR(check_ship_seconds(options.timeout_seconds));
  DW_RETURN_IF_ERROR(check_ship_seconds(options.answer_seconds));
  const Result<std::shared_ptr<Backend>> backend = find_backend(options.backend);
  if (!backend.ok()) return invalid_argument(backend.status().message());  // no use to try again
  std::optional<Identity> head;
  if (const Result<Chain> chain = Chain::open(store, {}); chain.ok()) {
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> newest, chain->head());
    if (newest) {
      DW_ASSIGN_OR_RETURN(const VersionRecord record, chain->version(*newest));
      head = record.identity();
    }
  } else if (chain.status().code() != Code::kNotFound) {
    return chain.status();
  }
  HubOptions how;
  how.address = options.address;
  how.secret = Secret(options.secret);
  how.open_to_all = options.open_to_all;
  DW_ASSIGN_OR_RETURN(std::unique_ptr<Hub> hub, Hub::listen(std::move(how)));
  return std::shared_ptr<Shipper>(std::make_shared<ShipperOnHub>(
      std::move(store), std::move(options), std::move(hub), *backend, head));
}

}  // namespace deltawire
