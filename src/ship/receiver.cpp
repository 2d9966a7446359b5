#include "ship/receiver.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "carrier/backend.h"
#include "chain/heartbeat.h"
#include "chain/names.h"
#include "ship/object_service.h"

namespace deltawire {
namespace {

constexpr size_t kMostWords = 4096;  // that wait; a publisher waits for us long before
constexpr uint64_t kMostRanks = 1 << 16;
constexpr double kMostSeconds = 3600, kExtraSeconds = 5;  // the publisher says first who is late
constexpr size_t kPieceFields = 4, kPartFields = 3;

// A part of a version, as a commit names it.
std::optional<PartRef> parse_part(const nlohmann::json& json) {
  if (!json.is_array() || json.size() != kPartFields || !json[0].is_string() ||
      !json[1].is_number_unsigned() || !json[2].is_string()) {
    return {};
  }
  const Result<Digest> sha256 = parse_digest(DigestKind::kSha256, json[2].get<std::string>());
  if (!sha256.ok()) return {};
  return PartRef{json[0].get<std::string>(), json[1].get<uint64_t>(), *sha256};
}

bool is_piece(const nlohmann::json& json) {
  return json.is_array() && json.size() == kPieceFields && json[0].is_string() &&
         std::all_of(json.begin() + 1, json.end(),
                     [](const nlohmann::json& field) { return field.is_number_unsigned(); });
}

std::filesystem::path scratch_of(const JoinOptions& options) {
  if (!options.scratch.empty()) return options.scratch;
  std::error_code error;
  return std::filesystem::temp_directory_path(error);
}

}  // namespace

Receiver::Receiver(const JoinOptions& options)
    : options_(options),
      held_({options.memory_bytes, scratch_of(options), options.scratch_bytes}) {}

Result<std::shared_ptr<Receiver>> Receiver::join(const JoinOptions& options) {
  std::shared_ptr<Receiver> receiver(new Receiver(options));
  MemberOptions member;
  member.hub = options.hub;
  member.secret = Secret(options.secret);
  member.name = options.name;
  member.hello = Message::of({{"ship", kShipProtocol}}).serialise();
  member.timeout_seconds = options.timeout_seconds;
  const HubClient::Told told = [self = receiver.get()](std::optional<Message> word) {
    self->told(std::move(word));
  };
  const bool may_be_away = options.behind != nullptr;  // which can be read meanwhile
  DW_ASSIGN_OR_RETURN(receiver->client_, HubClient::join(std::move(member), told, may_be_away));
  receiver->thread_ = std::thread([self = receiver.get()] { self->work(); });
  return receiver;
}

Receiver::~Receiver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (carrier_) carrier_->abort();
    changed_.notify_all();
  }
  if (client_) client_->stop();
  if (thread_.joinable()) thread_.join();
}

// On the thread that hears; work() does the rest, so that whoever asks the publisher something is
// answered meanwhile.
void Receiver::told(std::optional<Message> word) {
  const std::lock_guard lock(mutex_);
  if (!word) words_.clear();  // of a publisher that is gone
  words_.push_back(std::move(word));
  if (words_.size() > kMostWords) words_.pop_front();
  changed_.notify_all();
}

void Receiver::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !words_.empty(); });
    if (stopping_) break;
    const std::optional<Message> word = std::move(words_.front());
    words_.pop_front();
    lock.unlock();
    take(word);
    lock.lock();
  }
  lock.unlock();
  drop_carrier();
}

void Receiver::take(const std::optional<Message>& word) {
  if (!word) return start_again();
  if (const auto round = word->number("ready")) {
    (void)client_->tell(Message::of({{"ready", *round}}));
  } else if (word->has("epoch")) {
    enter(*word);
  } else if (word->has("bucket")) {
    receive(*word);
  } else if (word->has("commit")) {
    commit(*word);
  }
}

// What was sent before belongs to a publisher that may be another by now.
void Receiver::start_again() {
  drop_carrier();
  held_.clear();
  std::map<std::string, std::string> beats;
  {
    const std::lock_guard lock(mutex_);
    ++news_;
    changed_.notify_all();
    beats = beats_.texts(steady_seconds());
  }
  tell_follow();
  for (auto& [name, text] : beats) {
    (void)client_->ask({{"op", "put"}, {"name", name}}, std::move(text));
  }
}

// It ends without the mutex: one that is Python's wants the GIL for it.
void Receiver::drop_carrier() {
  std::unique_ptr<Carrier> old;
  const std::lock_guard lock(mutex_);
  old = std::move(carrier_);
}

Message Receiver::follow_message() const {
  return Message::of({{"follow", options_.pushed ? options_.buffer_bytes : 0}});
}

void Receiver::tell_follow() {
  {
    const std::lock_guard lock(mutex_);
    if (!following_) return;
  }
  (void)client_->tell(follow_message());
}

void Receiver::follow() {
  {
    const std::lock_guard lock(mutex_);
    if (following_) return;
    following_ = true;
  }
  tell_follow();
}

Status Receiver::beat(const std::string& name, std::string heartbeat) {
  const Result<Heartbeat> parsed = parse_heartbeat(heartbeat);
  if (!parsed.ok()) return parsed.status();
  follow();
  std::optional<uint64_t> least;
  {
    const std::lock_guard lock(mutex_);
    beats_.note(name, heartbeat, version_of(parsed->held), steady_seconds());
    least = beats_.least(steady_seconds());
  }
  if (least) held_.drop_up_to(*least);
  return client_->ask({{"op", "put"}, {"name", name}}, std::move(heartbeat)).status();
}

void Receiver::forget_beat(const std::string& name) {
  const std::lock_guard lock(mutex_);
  beats_.forget(name);
}

uint64_t Receiver::wait_for_news(uint64_t seen, double seconds) {
  follow();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&, buckets = buckets_] {
    return stopping_ || news_ > seen || buckets_ != buckets;
  });
  return news_;
}

void Receiver::enter(const Message& word) {
  drop_carrier();
  const uint64_t round = word.number("epoch").value_or(0);
  const uint64_t rank = word.number("rank").value_or(0), size = word.number("size").value_or(0);
  const Result<std::unique_ptr<Carrier>> entered = [&]() -> Result<std::unique_ptr<Carrier>> {
    const std::string name = word.text("backend").value_or("");
    DW_ASSIGN_OR_RETURN(const std::shared_ptr<Backend> backend, find_backend(name));
    if (rank == 0 || rank >= size || size > kMostRanks) {
      return corruption("rank " + std::to_string(rank) + " of " + std::to_string(size));
    }
    const GroupOptions how{unsigned(size), {}, Secret(options_.secret)};
    DW_ASSIGN_OR_RETURN(std::unique_ptr<Carrier> carrier,
                        backend->enter(word.text("ticket").value_or(""), unsigned(rank), how,
                                       options_.timeout_seconds));
    const std::lock_guard lock(mutex_);
    if (stopping_) return cancelled("the replica ends");
    carrier_ = std::move(carrier);
    return std::unique_ptr<Carrier>();
  }();
  Message answer = Message::of({{"entered", round}});
  if (!entered.ok()) {
    log_event(LogLevel::kWarning, "ship.not_in_group", {{"error", entered.status()}});
    answer = Message::of({{"entered", round}, {"error", entered.status().to_string()}});
  }
  (void)client_->tell(answer);
}

void Receiver::receive(const Message& word) {
  if (!carrier_) return;
  const uint64_t size = word.number("bytes").value_or(UINT64_MAX);
  const double limit = double(word.number("seconds").value_or(0));
  const double seconds =
      std::max(options_.timeout_seconds, std::min(limit, kMostSeconds)) + kExtraSeconds;
  Status status = guard_memory("receiving", [&]() -> Status {
    if (size > options_.buffer_bytes) {
      return corruption(std::to_string(size) + " bytes at once are more than this replica takes");
    }
    buffer_.resize(size_t(size));
    if (size != 0) DW_RETURN_IF_ERROR(carrier_->broadcast(0, buffer_, seconds));
    return take_pieces(word);
  });
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    ++buckets_;
    changed_.notify_all();
    return;
  }
  log_event(LogLevel::kWarning, "ship.group_lost", {{"error", status}});
  drop_carrier();
}

Status Receiver::take_pieces(const Message& word) {
  const auto pieces = word.head().find("pieces");
  if (pieces == word.head().end() || !pieces->is_array()) return corruption("no pieces");
  Bytes rest = buffer_;
  for (const nlohmann::json& piece : *pieces) {
    if (!is_piece(piece)) return corruption("a piece that is none");
    const uint64_t length = piece[3].get<uint64_t>();
    if (length > rest.size()) return corruption("a piece behind the end of its bucket");
    DW_RETURN_IF_ERROR(held_.add(piece[0].get<std::string>(), piece[1].get<uint64_t>(),
                                 piece[2].get<uint64_t>(), rest.first(size_t(length))));
    rest = rest.subspan(size_t(length));
  }
  return {};
}

void Receiver::commit(const Message& word) {
  const std::optional<uint64_t> version = word.number("commit");
  if (!version || *version > kMaxVersion) return;
  std::vector<PartRef> parts;
  if (const auto found = word.head().find("parts"); found != word.head().end()) {
    for (const nlohmann::json& json : *found) {
      if (std::optional<PartRef> part = parse_part(json)) parts.push_back(std::move(*part));
    }
  }
  for (const std::string& name : held_.commit(*version, parts)) {
    log_event(LogLevel::kWarning, "ship.damaged", {{"object", name}});
    (void)client_->tell(Message::of({{"damaged", name}}));
  }
  const std::lock_guard lock(mutex_);
  ++news_;
  changed_.notify_all();
}

}  // namespace deltawire
