#include "carrier/channel.h"

#include <sys/socket.h>

#include <chrono>

#include "carrier/hub.h"

namespace deltawire {
namespace {

// What waits to be heard or sent, before the other end, or the caller, has to wait too.
constexpr uint64_t kMostHeldBytes = kMaxMessageBytes;
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kReadsAtOnce = 16;

// A reason of somebody else, fit for a message of ours.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 1000));
  for (char& c : shown) {
    if (uint8_t(c) < 0x20 || uint8_t(c) == 0x7f) c = '?';
  }
  return shown;
}

void wait_on(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
             const Deadline& deadline) {
  changed.wait_for(lock, std::chrono::duration<double>(deadline.wait_seconds()));
}

}  // namespace

Channel::Channel(Socket socket, const MacKey& send_key, const MacKey& receive_key,
                 ChannelOptions options, const Wake& wake)
    : socket_(std::move(socket)),
      wake_(wake),
      options_(std::move(options)),
      reader_(receive_key, options_.max_payload_bytes),
      heard_at_(steady_seconds()),
      sent_at_(heard_at_),
      writer_(send_key) {}

void Channel::set_options(ChannelOptions options) {
  const std::lock_guard lock(mutex_);
  reader_.set_max_payload_bytes(options.max_payload_bytes);
  options_ = std::move(options);
}

bool Channel::paused_locked() const { return in_bytes_ > kMostHeldBytes; }

pollfd Channel::poll_for() {
  const std::lock_guard lock(mutex_);
  if (!why_ended_.ok()) return {-1, 0, 0};
  // The end of a connection is noticed also while nothing is read.
  const short events = short((paused_locked() ? POLLRDHUP : POLLIN) | (out_.empty() ? 0 : POLLOUT));
  return {socket_.get(), events, 0};
}

void Channel::advance(short events) {
  const double now = steady_seconds();
  Status status;
  if ((events & (POLLIN | POLLHUP | POLLERR | POLLRDHUP)) != 0) status = receive();
  const std::lock_guard lock(mutex_);
  if (!why_ended_.ok()) return;
  if (status.ok() && out_.empty() && !leaving_ && now - sent_at_ > options_.silence_seconds / 5) {
    out_.push_back(writer_.write(FrameKind::kBeat, {}));
    out_bytes_ += out_.back().size();
    ++num_posted_;
  }
  if (status.ok()) status = flush_locked();
  if (paused_locked()) heard_at_ = now;  // we do not listen
  if (status.ok() && now - heard_at_ > options_.silence_seconds) {
    status = unavailable("nothing came from it for " +
                         std::to_string(int(options_.silence_seconds)) + " seconds");
  }
  if (status.ok()) return;
  why_ended_ = std::move(status);
  changed_.notify_all();
}

Status Channel::receive() {
  char buffer[kReadBytes];
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && is_transient(errno)) return {};
    if (n < 0) return unavailable(std::strerror(errno));
    if (n == 0) return unavailable("it closed the connection");
    heard_at_ = steady_seconds();
    reader_.add({buffer, size_t(n)});
    DW_RETURN_IF_ERROR(take_frames());
    if (n < ssize_t(sizeof buffer)) return {};
  }
  return {};
}

Status Channel::take_frames() {
  for (;;) {
    DW_ASSIGN_OR_RETURN(std::optional<Frame> frame, reader_.next());
    if (!frame) return {};
    if (frame->kind == FrameKind::kBeat) continue;
    if (frame->kind == FrameKind::kGoodbye) {
      return cancelled(frame->payload.empty() ? "it left" : printable(frame->payload));
    }
    const std::lock_guard lock(mutex_);
    if (leaving_) continue;
    in_bytes_ += frame->payload.size();
    in_.push_back(std::move(*frame));
    changed_.notify_all();
  }
}

Status Channel::flush_locked() {
  while (!out_.empty()) {
    const std::string& first = out_.front();
    const ssize_t n = ::send(socket_.get(), first.data() + out_done_, first.size() - out_done_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && is_transient(errno)) return {};
    if (n < 0) return unavailable(std::strerror(errno));
    sent_at_ = steady_seconds();
    out_done_ += size_t(n);
    if (out_done_ < first.size()) continue;
    out_bytes_ -= first.size();
    out_done_ = 0;
    out_.pop_front();
    ++num_sent_;
    changed_.notify_all();
  }
  if (leaving_ && !shut_) {
    shut_ = true;
    ::shutdown(socket_.get(), SHUT_WR);
  }
  return {};
}

void Channel::post(FrameKind kind, std::string_view payload) {
  const std::lock_guard lock(mutex_);
  if (!why_ended_.ok() || leaving_) return;
  out_.push_back(writer_.write(kind, payload));
  out_bytes_ += out_.back().size();
  ++num_posted_;
  if (out_.size() == 1) (void)flush_locked();  // a failure is seen by the loop as well
  if (!out_.empty()) wake_.set();
}

Status Channel::late(const char* what) const { return unavailable(options_.place + what); }

Status Channel::tell(std::string_view message, const Deadline& deadline) {
  if (message.size() > kMaxMessageBytes) {
    return invalid_argument("a message of " + std::to_string(message.size()) + " bytes, where " +
                            std::to_string(kMaxMessageBytes) + " are allowed");
  }
  std::unique_lock lock(mutex_);
  const auto blocked = [&](const auto& condition) -> Status {
    while (why_ended_.ok() && condition()) {
      if (deadline.over()) return late(": timed out sending a message");
      if (stop_requested()) return cancelled("stopped");
      wait_on(changed_, lock, deadline);
    }
    return why_ended_.ok() ? Status() : Status(why_ended_).at(options_.place);
  };
  DW_RETURN_IF_ERROR(blocked([&] { return out_bytes_ > kMostHeldBytes; }));
  out_.push_back(writer_.write(FrameKind::kMessage, message));
  out_bytes_ += out_.back().size();
  const uint64_t number = ++num_posted_;
  if (out_.size() == 1) (void)flush_locked();
  if (!out_.empty()) wake_.set();
  return blocked([&] { return num_sent_ < number; });
}

Result<std::string> Channel::hear(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!interrupted_.ok()) return interrupted_;
    if (!in_.empty()) {
      const bool was_paused = paused_locked();
      std::string message = std::move(in_.front().payload);
      in_bytes_ -= message.size();
      in_.pop_front();
      if (was_paused) wake_.set();
      return message;
    }
    if (!why_ended_.ok()) return Status(why_ended_).at(options_.place);
    if (deadline.over()) return late(": timed out waiting for a message");
    if (stop_requested()) return cancelled("stopped");
    wait_on(changed_, lock, deadline);
  }
}

std::optional<Frame> Channel::take_frame() {
  const std::lock_guard lock(mutex_);
  if (in_.empty()) return {};
  Frame frame = std::move(in_.front());
  in_bytes_ -= frame.payload.size();
  in_.pop_front();
  return frame;
}

void Channel::leave(std::string_view reason) {
  post(FrameKind::kGoodbye, reason);
  const std::lock_guard lock(mutex_);
  leaving_ = true;
  in_.clear();
  in_bytes_ = 0;
  if (why_ended_.ok() && out_.empty()) (void)flush_locked();
}

void Channel::end(Status why) {
  const std::lock_guard lock(mutex_);
  if (why_ended_.ok()) why_ended_ = std::move(why);
  changed_.notify_all();
}

void Channel::interrupt(Status why) {
  const std::lock_guard lock(mutex_);
  interrupted_ = std::move(why);
  changed_.notify_all();
}

void Channel::close() {
  const std::lock_guard lock(mutex_);
  if (why_ended_.ok()) why_ended_ = cancelled("closed");
  changed_.notify_all();
  socket_.close();
}

bool Channel::ended() const {
  const std::lock_guard lock(mutex_);
  return !why_ended_.ok();
}

Status Channel::why_ended() const {
  const std::lock_guard lock(mutex_);
  return why_ended_;
}

bool Channel::drained() const {
  const std::lock_guard lock(mutex_);
  return out_.empty();
}

uint64_t Channel::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return in_bytes_;
}

}  // namespace deltawire
