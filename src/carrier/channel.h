// One connection between a hub and a member after the handshake: messages in both directions, and
// heartbeats by which each end knows that the other is there.
//
// A loop of the owner calls poll_for() and advance(), one thread; all else is for any thread.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

#include "carrier/frames.h"
#include "carrier/net/deadline.h"
#include "carrier/net/socket.h"
#include "carrier/net/wake.h"

namespace deltawire {

// What stands for a peer in messages, and how long a silence of it may last.
struct ChannelOptions {
  std::string place;
  double silence_seconds = 15;
  uint64_t max_payload_bytes = 0;
};

class Channel {
 public:
  // `wake` ends the loop's poll(); it outlives this.
  Channel(Socket socket, const MacKey& send_key, const MacKey& receive_key, ChannelOptions options,
          const Wake& wake);

  // Before others know of it, or by the loop.
  void set_options(ChannelOptions options);

  pollfd poll_for();
  // After poll(): reads, writes, says that it is there, ends when the other end is not.
  void advance(short events);

  // Waits until the system has the message. Late: it may still arrive.
  Status tell(std::string_view message, const Deadline& deadline);
  // Does not wait.
  void post(FrameKind kind, std::string_view payload);
  // The next message; after the last one, why there are no more. Unavailable when none comes.
  Result<std::string> hear(const Deadline& deadline);
  // The first frame, whatever its kind, if it is there.
  std::optional<Frame> take_frame();

  // Says goodbye; what comes is thrown away. closed() when the other end has it, or does not care.
  void leave(std::string_view reason);
  // For whoever waits: ends it with `why`. The first reason stays.
  void end(Status why);
  void interrupt(Status why);  // hear() alone, for good

  // By the loop, when it has ended: the other end shall know. What was heard stays.
  void close();

  bool ended() const;
  Status why_ended() const;
  bool drained() const;  // all that was posted is with the system
  uint64_t held_bytes() const;

 private:
  Status receive();
  Status take_frames();
  Status flush_locked();
  bool paused_locked() const;
  Status late(const char* what) const;

  Socket socket_;
  const Wake& wake_;
  ChannelOptions options_;
  FrameReader reader_;
  double heard_at_, sent_at_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  FrameWriter writer_;
  std::deque<std::string> out_;
  size_t out_done_ = 0;  // of the first
  uint64_t out_bytes_ = 0, num_posted_ = 0, num_sent_ = 0;
  std::deque<Frame> in_;
  uint64_t in_bytes_ = 0;
  Status why_ended_, interrupted_;
  bool leaving_ = false, shut_ = false;
};

}  // namespace deltawire
