#include "ship/hub_client.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace deltawire {
namespace {

constexpr double kHearSeconds = 5;  // then it looks whether it is to end
constexpr double kFirstPause = 0.1, kLongestPause = 5;
constexpr double kJoinSeconds = 5;

std::chrono::duration<double> client_seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

HubClient::HubClient(MemberOptions options, Told told)
    : options_(std::move(options)), told_(std::move(told)) {}

Result<std::unique_ptr<HubClient>> HubClient::join(MemberOptions options, Told told,
                                                   bool may_be_away) {
  MemberOptions first = options;
  if (may_be_away) first.timeout_seconds = std::min(first.timeout_seconds, kJoinSeconds);
  Result<std::unique_ptr<Member>> member = Member::join(std::move(first));
  const bool away = member.status().code() == Code::kUnavailable;
  if (!member.ok() && !(away && may_be_away)) return member.status();
  std::unique_ptr<HubClient> client(new HubClient(std::move(options), std::move(told)));
  if (away) {
    client->why_away_ = member.status().message();
    log_event(LogLevel::kWarning, "ship.publisher_away",
              {{"hub", client->options_.hub}, {"error", member.status()}});
  } else {
    client->member_ = std::move(*member);
  }
  client->thread_ = std::thread([self = client.get()] { self->listen(); });
  return client;
}

HubClient::~HubClient() { stop(); }

void HubClient::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (member_) member_->abort();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Member> HubClient::member() const {
  const std::lock_guard lock(mutex_);
  return member_;
}

Status HubClient::away() const {
  const std::lock_guard lock(mutex_);
  return unavailable("ship://" + options_.hub + ": the publisher is away" +
                     (why_away_.empty() ? "" : ": " + why_away_));
}

Status HubClient::tell(const Message& message) {
  const std::shared_ptr<Member> to = member();
  if (!to) return away();
  const std::string text = message.serialise();
  const std::lock_guard lock(tell_mutex_);
  Status status = to->tell(text, options_.timeout_seconds);
  // One that has just let go of us is away: it may come back, and a store behind can answer.
  if (status.code() == Code::kCancelled) return unavailable(status.message());
  return status;
}

Result<Message> HubClient::ask(nlohmann::json head, std::string body) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++asked_;
    waiting_.emplace(number, std::nullopt);
  }
  head["ask"] = number;
  Status told = tell(Message(std::move(head), std::move(body)));
  std::unique_lock lock(mutex_);
  if (told.ok()) {
    changed_.wait_for(lock, client_seconds(options_.timeout_seconds), [&] {
      const auto found = waiting_.find(number);
      return stopping_ || found == waiting_.end() || found->second.has_value();
    });
  }
  const auto found = waiting_.find(number);
  std::optional<Message> answer;
  if (found != waiting_.end()) {
    answer = std::move(found->second);
    waiting_.erase(found);
  }
  lock.unlock();
  if (!told.ok()) return told;
  if (answer) {
    DW_RETURN_IF_ERROR(status_of(*answer));
    return std::move(*answer);
  }
  if (!member()) return away();
  return unavailable("ship://" + options_.hub + ": no answer within " +
                     std::to_string(int(options_.timeout_seconds)) + " seconds");
}

void HubClient::listen() {
  if (member()) told_(std::nullopt);
  while (true) {
    if (const std::shared_ptr<Member> now = member()) hear_until_lost(*now);
    {
      const std::lock_guard lock(mutex_);
      member_.reset();
      waiting_.clear();  // nobody will answer
      changed_.notify_all();
      if (stopping_) return;
    }
    if (!join_again()) return;
    told_(std::nullopt);
  }
}

void HubClient::hear_until_lost(Member& member) {
  while (true) {
    Result<std::string> heard = member.hear(kHearSeconds);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (!heard.ok()) {
      if (heard.status().code() == Code::kUnavailable && !member.lost()) continue;
      log_event(LogLevel::kWarning, "ship.publisher_away",
                {{"hub", options_.hub}, {"error", heard.status()}});
      const std::lock_guard lock(mutex_);
      why_away_ = heard.status().message();
      return;
    }
    Result<Message> message = Message::parse(*heard);
    if (!message.ok()) {
      log_event(LogLevel::kWarning, "ship.bad_message",
                {{"hub", options_.hub}, {"error", message.status()}});
      return;
    }
    if (const auto number = message->number("answer")) {
      const std::lock_guard lock(mutex_);
      const auto found = waiting_.find(*number);
      if (found != waiting_.end()) found->second = std::move(*message);
      changed_.notify_all();
    } else {
      told_(std::move(*message));
    }
  }
}

// False: it is to end. Only another secret is no reason to try again, but it may be set right.
bool HubClient::join_again() {
  MemberOptions options = options_;
  options.timeout_seconds = std::min(options.timeout_seconds, kJoinSeconds);
  for (double wait = kFirstPause;; wait = std::min(2 * wait, kLongestPause)) {
    pause(wait);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
    }
    Result<std::unique_ptr<Member>> joined = Member::join(options);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      if (joined.ok()) {
        member_ = std::move(*joined);
      } else {
        why_away_ = joined.status().message();
      }
    }
    if (!joined.ok()) continue;
    log_event(LogLevel::kInfo, "ship.publisher_back", {{"hub", options_.hub}});
    return true;
  }
}

void HubClient::pause(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, client_seconds(seconds), [&] { return stopping_; });
}

}  // namespace deltawire
