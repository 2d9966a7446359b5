// A replica's connection to its publisher: asks and is answered, is told of what comes, and joins
// again when the publisher was away.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "carrier/hub.h"
#include "ship/messages.h"

namespace deltawire {

class HubClient {
 public:
  // Called from one thread, in order. `word` none: joined, at first or again.
  using Told = std::function<void(std::optional<Message> word)>;

  // Joins, or fails. `told` is called until stop(). `may_be_away`: a publisher that is not there
  // yet is joined when it comes.
  static Result<std::unique_ptr<HubClient>> join(MemberOptions options, Told told,
                                                 bool may_be_away = false);
  ~HubClient();  // as stop()

  // Waits for the answer; Unavailable when there is none in time.
  Result<Message> ask(nlohmann::json head, std::string body = {});
  Status tell(const Message& message);
  void stop();
  const std::string& hub() const noexcept { return options_.hub; }

 private:
  HubClient(MemberOptions options, Told told);
  void listen();
  void hear_until_lost(Member& member);
  bool join_again();
  void pause(double seconds);
  std::shared_ptr<Member> member() const;
  Status away() const;

  const MemberOptions options_;
  const Told told_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Member> member_;  // null: away
  std::string why_away_;
  bool stopping_ = false;
  uint64_t asked_ = 0;
  // Number of a question -> its answer, once it is there. An empty one while it is waited for.
  std::map<uint64_t, std::optional<Message>> waiting_;
  std::mutex tell_mutex_;  // one call at a time
  std::thread thread_;
};

}  // namespace deltawire
