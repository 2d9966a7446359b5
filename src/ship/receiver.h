// Takes in what a publisher sends: enters groups, receives buckets, hears of commits. On a thread
// of its own, beside the one that hears.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "carrier/carrier.h"
#include "ship/beats.h"
#include "ship/held_objects.h"
#include "ship/hub_client.h"
#include "ship/ship.h"

namespace deltawire {

class Receiver {
 public:
  static Result<std::shared_ptr<Receiver>> join(const JoinOptions& options);
  ~Receiver();

  HubClient& hub() noexcept { return *client_; }
  const HeldObjects& held() const noexcept { return held_; }

  // A replica follows: new versions are told, and sent, from now on. Once is enough.
  void follow();
  // What a replica says of itself goes to the publisher, at once and after joining again.
  Status beat(const std::string& name, std::string heartbeat);
  // It says no more.
  void forget_beat(const std::string& name);
  // How often something new was told, once that is more than `seen`, a bucket has come, or the time
  // is over.
  uint64_t wait_for_news(uint64_t seen, double seconds);

 private:
  explicit Receiver(const JoinOptions& options);
  void told(std::optional<Message> word);
  void work();
  void take(const std::optional<Message>& word);
  void start_again();
  void enter(const Message& word);
  void receive(const Message& word);
  Status take_pieces(const Message& word);
  void commit(const Message& word);
  void drop_carrier();
  void tell_follow();
  Message follow_message() const;

  const JoinOptions options_;
  HeldObjects held_;
  std::vector<uint8_t> buffer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::optional<Message>> words_;
  std::unique_ptr<Carrier> carrier_;  // used by work() alone; the pointer is changed with the mutex
  bool stopping_ = false, following_ = false;
  uint64_t news_ = 0, buckets_ = 0;  // commits, and what came before them
  Beats beats_;

  std::unique_ptr<HubClient> client_;
  std::thread thread_;
};

}  // namespace deltawire
