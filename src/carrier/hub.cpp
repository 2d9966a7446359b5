#include "carrier/hub.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "carrier/channel.h"
#include "carrier/net/acceptor.h"
#include "carrier/welcome.h"

namespace deltawire {
namespace {

constexpr size_t kMostJoining = 256;
constexpr double kGoodbyeSeconds = 1;  // to take it
// What those who went had still to say: kept for hear(), oldest thrown away first.
constexpr size_t kMostGone = 1024;
constexpr uint64_t kMostGoneBytes = uint64_t{64} << 20;

struct Present {
  MemberInfo info;
  std::shared_ptr<Channel> channel;
};

// Past the handshake, before its hello; or after its dismissal.
struct Passing {
  std::shared_ptr<Channel> channel;
  std::string from;
  Deadline deadline;
};

class TcpHub final : public Hub {
 public:
  TcpHub(HubOptions options, Listening listening)
      : options_(std::move(options)),
        address_(std::move(listening.address)),
        acceptor_(std::move(listening.socket), options_.secret, std::string(kHubPurpose),
                  options_.handshake_timeout_seconds) {}

  ~TcpHub() override {
    stopping_ = true;
    wake_.set();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    if (!wake_.ok()) return io_error(std::string("eventfd: ") + std::strerror(errno));
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      return unavailable(std::string("hub: no thread: ") + error.what());
    }
    return {};
  }

  std::string address() const override { return address_; }

  std::vector<MemberInfo> members() const override {
    const std::lock_guard lock(mutex_);
    std::vector<MemberInfo> infos;
    for (const auto& [id, present] : present_) {
      if (!present.channel->ended()) infos.push_back(present.info);  // the loop lets it go soon
    }
    return infos;
  }

  Status wait_for(size_t num_members, double timeout_seconds) override {
    const Deadline deadline(timeout_seconds);
    std::unique_lock lock(mutex_);
    while (present_.size() < num_members) {
      if (stop_requested()) return cancelled("stopped");
      if (deadline.over()) {
        return unavailable("hub " + address_ + ": " + std::to_string(present_.size()) + " of " +
                           std::to_string(num_members) + " members are there");
      }
      changed_.wait_for(lock, std::chrono::duration<double>(deadline.wait_seconds()));
    }
    return {};
  }

  Status tell(uint64_t member, std::string_view message, double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel, find(member));
    return as_gone(channel->tell(message, Deadline(timeout_seconds)));
  }

  Result<std::string> hear(uint64_t member, double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel, find(member));
    auto message = channel->hear(Deadline(timeout_seconds));
    if (message.ok()) return message;
    return as_gone(message.status());
  }

  void dismiss(uint64_t member, std::string_view reason) override {
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(mutex_);
      const auto found = present_.find(member);
      if (found == present_.end()) return;
      channel = found->second.channel;
      leaving_.push_back({channel, found->second.info.from, Deadline(kGoodbyeSeconds)});
      present_.erase(found);
      changed_.notify_all();
    }
    channel->leave(reason);
    channel->interrupt(unavailable("member " + std::to_string(member) + " was dismissed"));
    wake_.set();
  }

 private:
  // Its goodbye is no order to stop what we do.
  static Status as_gone(Status status) {
    if (status.code() != Code::kCancelled || stop_requested()) return status;
    return unavailable(status.message());
  }

  Result<std::shared_ptr<Channel>> find(uint64_t member) const {
    const std::lock_guard lock(mutex_);
    const auto here = present_.find(member);
    if (here != present_.end()) return here->second.channel;
    const auto gone = gone_.find(member);
    if (gone != gone_.end()) return gone->second;
    return not_found("hub " + address_ + ": no member " + std::to_string(member));
  }

  void run() {
    while (!stopping_) step();
    const Deadline deadline(kGoodbyeSeconds);
    {
      const std::lock_guard lock(mutex_);
      for (auto& [id, present] : present_) {
        leaving_.push_back({present.channel, present.info.from, deadline});
      }
      present_.clear();
    }
    for (const Passing& one : leaving_) one.channel->leave("the hub has closed");
    while (!deadline.over() && !leaving_.empty()) step();
  }

  // Once around: whoever has something to say gets a bounded share.
  void step() {
    std::vector<std::shared_ptr<Channel>> channels;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, present] : present_) channels.push_back(present.channel);
      for (const Passing& one : leaving_) channels.push_back(one.channel);
    }
    for (const Passing& one : joining_) channels.push_back(one.channel);
    std::vector<pollfd> polled = {{wake_.fd(), POLLIN, 0}};
    acceptor_.poll_for(&polled);
    const size_t first = polled.size();
    for (const auto& channel : channels) polled.push_back(channel->poll_for());
    const double pause = stopping_ ? 0.05 : std::clamp(options_.silence_seconds / 10, 0.01, 1.0);
    const int ready = ::poll(polled.data(), polled.size(), int(pause * 1000));
    if (ready <= 0) {
      for (pollfd& one : polled) one.revents = 0;
    }
    if (polled[0].revents != 0) wake_.clear();
    for (size_t i = 0; i < channels.size(); ++i) channels[i]->advance(polled[first + i].revents);
    for (Caller& caller : acceptor_.advance(polled.data() + 1)) greet(std::move(caller));
    let_in();
    let_go();
  }

  void greet(Caller caller) {
    if (joining_.size() >= kMostJoining) joining_.erase(joining_.begin());
    const MacKey send = caller.handshake.key_of_answerer();
    const MacKey receive = caller.handshake.key_of_caller();
    ChannelOptions options{caller.from, options_.silence_seconds, kMaxHelloBytes + 256};
    joining_.push_back({std::make_shared<Channel>(std::move(caller.socket), send, receive,
                                                  std::move(options), wake_),
                        caller.from, Deadline(options_.handshake_timeout_seconds)});
  }

  // Those whose hello has come.
  void let_in() {
    std::vector<Passing> still;
    for (Passing& one : joining_) {
      const std::optional<Frame> frame = one.channel->take_frame();
      if (frame) {
        admit(std::move(one), *frame);
      } else if (!one.channel->ended() && !one.deadline.over()) {
        still.push_back(std::move(one));
      }
    }
    joining_ = std::move(still);
  }

  void admit(Passing one, const Frame& frame) {
    auto words = read_hello(frame);
    Status refusal = words.status();
    const std::lock_guard lock(mutex_);
    if (words.ok() && present_.size() >= options_.max_members) {
      refusal = unavailable("the hub has all of its " + std::to_string(options_.max_members) +
                            " members");
    }
    if (!refusal.ok()) {
      log_event(LogLevel::kWarning, "carrier.refused",
                {{"from", one.from}, {"reason", refusal.message()}});
      one.channel->leave(refusal.message());
      leaving_.push_back({one.channel, one.from, Deadline(kGoodbyeSeconds)});
      return;
    }
    const uint64_t id = ++last_id_;
    one.channel->set_options({"member " + words->name + " (" + one.from + ")",
                              options_.silence_seconds, kMaxMessageBytes});
    one.channel->post(FrameKind::kWelcome, write_welcome({id, options_.silence_seconds}));
    present_[id] = {{id, std::move(words->name), std::move(words->hello), one.from}, one.channel};
    changed_.notify_all();
  }

  void let_go() {
    const std::lock_guard lock(mutex_);
    for (auto one = present_.begin(); one != present_.end();) {
      if (!one->second.channel->ended()) {
        ++one;
        continue;
      }
      log_event(LogLevel::kInfo, "carrier.member_gone",
                {{"member", one->second.info.name},
                 {"from", one->second.info.from},
                 {"reason", one->second.channel->why_ended().message()}});
      one->second.channel->close();
      gone_[one->first] = std::move(one->second.channel);
      one = present_.erase(one);
      changed_.notify_all();
    }
    uint64_t bytes = 0;
    for (const auto& [id, channel] : gone_) bytes += channel->held_bytes();
    while (gone_.size() > kMostGone || bytes > kMostGoneBytes) {
      bytes -= gone_.begin()->second->held_bytes();
      gone_.erase(gone_.begin());
    }
    leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(),
                                  [](const Passing& one) {
                                    return one.channel->ended() || one.deadline.over();
                                  }),
                   leaving_.end());
  }

  const HubOptions options_;
  const std::string address_;
  Wake wake_;
  Acceptor acceptor_;             // of the loop
  std::vector<Passing> joining_;  // of the loop, oldest first
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<uint64_t, Present> present_;
  std::map<uint64_t, std::shared_ptr<Channel>> gone_;
  std::vector<Passing> leaving_;
  uint64_t last_id_ = 0;

  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Hub>> Hub::listen(HubOptions options) {
  if (!(options.silence_seconds > 0)) return invalid_argument("hub: silence_seconds must be > 0");
  DW_ASSIGN_OR_RETURN(Listening listening, listen_on(options.address));
  if (options.secret.empty() && !options.open_to_all && !listening.loopback) {
    return invalid_argument("hub on " + options.address +
                            ": without a secret it may listen on loopback only");
  }
  auto hub = std::make_unique<TcpHub>(std::move(options), std::move(listening));
  DW_RETURN_IF_ERROR(hub->start());
  return std::unique_ptr<Hub>(std::move(hub));
}

}  // namespace deltawire
