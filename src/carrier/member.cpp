#include <poll.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

#include "base/process.h"
#include "carrier/channel.h"
#include "carrier/hub.h"
#include "carrier/net/call.h"
#include "carrier/welcome.h"

namespace deltawire {
namespace {

constexpr double kLeaveSeconds = 1;

class TcpMember final : public Member {
 public:
  explicit TcpMember(std::string place) : place_(std::move(place)) {}

  ~TcpMember() override {
    if (channel_) channel_->leave("");
    stopping_ = true;
    wake_.set();
    if (thread_.joinable()) thread_.join();
  }

  // Hello, welcome, then a thread that listens.
  Status enter(Called called, const HelloWords& words, const Deadline& deadline) {
    if (!wake_.ok()) return io_error(std::string("eventfd: ") + std::strerror(errno));
    address_ = local_address(called.socket.get());
    const int fd = called.socket.get();
    channel_ = std::make_unique<Channel>(
        std::move(called.socket), called.handshake.key_of_caller(),
        called.handshake.key_of_answerer(),
        ChannelOptions{place_, std::max(deadline.left(), 1.0), kMaxMessageBytes}, wake_);
    channel_->post(FrameKind::kHello, write_hello(words));
    std::optional<Frame> frame;
    while (!(frame = channel_->take_frame())) {
      if (channel_->ended()) return refused(channel_->why_ended());
      DW_RETURN_IF_ERROR(wait_for_socket(fd, channel_->poll_for().events, deadline, place_));
      channel_->advance(POLLIN | POLLOUT);
    }
    auto welcome = read_welcome(*frame);
    if (!welcome.ok()) return std::move(welcome).status().at(place_);
    id_ = welcome->id;
    silence_seconds_ = welcome->silence_seconds;
    channel_->set_options({place_, silence_seconds_, kMaxMessageBytes});
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      return unavailable(place_ + ": no thread: " + error.what());
    }
    return {};
  }

  uint64_t id() const noexcept override { return id_; }
  std::string address() const override { return address_; }
  bool lost() const noexcept override { return channel_->ended(); }
  void abort() noexcept override { channel_->interrupt(cancelled(place_ + ": aborted")); }

  Status tell(std::string_view message, double timeout_seconds) override {
    return channel_->tell(message, Deadline(timeout_seconds));
  }
  Result<std::string> hear(double timeout_seconds) override {
    return channel_->hear(Deadline(timeout_seconds));
  }

 private:
  // A goodbye in place of a welcome.
  Status refused(const Status& why) const { return unavailable(place_ + ": " + why.message()); }

  void run() {
    while (!stopping_ && !channel_->ended()) step(std::clamp(silence_seconds_ / 10, 0.01, 1.0));
    const Deadline deadline(kLeaveSeconds);
    while (!channel_->ended() && !channel_->drained() && !deadline.over()) step(0.05);
    channel_->close();
  }

  void step(double seconds) {
    pollfd polled[2] = {{wake_.fd(), POLLIN, 0}, channel_->poll_for()};
    const int ready = ::poll(polled, 2, int(seconds * 1000));
    if (ready > 0 && polled[0].revents != 0) wake_.clear();
    channel_->advance(ready > 0 ? polled[1].revents : 0);
  }

  const std::string place_;
  std::string address_;
  uint64_t id_ = 0;
  double silence_seconds_ = 0;
  Wake wake_;
  std::unique_ptr<Channel> channel_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Member>> Member::join(MemberOptions options) {
  const Deadline deadline(options.timeout_seconds);
  const HelloWords words{options.name.empty() ? process_name() : std::move(options.name),
                         std::move(options.hello)};
  DW_RETURN_IF_ERROR(check_hello(words));
  const std::string place = "hub " + options.hub;
  DW_ASSIGN_OR_RETURN(Called called,
                      call_until(options.hub, options.secret, kHubPurpose, 0, deadline, place));
  auto member = std::make_unique<TcpMember>(place);
  DW_RETURN_IF_ERROR(member->enter(std::move(called), words, deadline));
  return std::unique_ptr<Member>(std::move(member));
}

}  // namespace deltawire
