#include "ship/sender.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/process.h"
#include "chain/names.h"
#include "ship/messages.h"

namespace deltawire {
namespace {

// Everybody has just answered: who does not come now has a reason.
constexpr double kMostFormSeconds = 20;

double sender_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of the hub, as others see it.
std::string host_of(const ShipOptions& options, const std::string& address) {
  if (!options.host.empty()) return options.host;
  const std::string host = address.substr(0, address.rfind(':'));
  return host.empty() || host == "0.0.0.0" || host == "[::]" ? host_name() : host;
}

nlohmann::json pieces_json(const std::vector<BucketPiece>& pieces) {
  auto json = nlohmann::json::array();
  for (const BucketPiece& piece : pieces) {
    json.push_back({piece.name, piece.object_bytes, piece.offset, piece.length});
  }
  return json;
}

}  // namespace

Sender::Sender(Hub& hub, Roster& roster, BucketQueue& queue, std::shared_ptr<Backend> backend,
               const ShipOptions& options)
    : hub_(hub), roster_(roster), queue_(queue), backend_(std::move(backend)), options_(options) {}

SentSoFar Sender::sent() const {
  const std::lock_guard lock(sent_mutex_);
  return sent_;
}

void Sender::run() {
  Bucket bucket;
  while (queue_.take(&bucket)) {
    if (stopping_) continue;
    if (!bucket.pieces.empty()) send(bucket);
    for (const CommitWord& word : bucket.commits) tell_commit(word);
  }
  drop_group();
}

void Sender::stop() {
  stopping_ = true;
  const std::lock_guard lock(carrier_mutex_);
  if (carrier_) carrier_->abort();
}

bool Sender::begin_version(const ShipAttempt& attempt) {
  if (begun_ == attempt) return false;
  begun_ = attempt;
  {
    const std::lock_guard lock(sent_mutex_);
    sent_.bytes = 0;
    sent_.begin.reset();
  }
  roster_.begin_version();
  return true;
}

void Sender::tell(uint64_t id, const std::string& message) {
  // Whoever does not take it in is found by the carrier, or by its silence.
  (void)hub_.tell(id, message, options_.answer_seconds);
}

void Sender::ensure_group(const Roster::Ids& wanted) {
  if (wanted.empty() || stopping_) return drop_group();
  const uint64_t round = roster_.begin_round();
  const std::string question = Message::of({{"ready", round}}).serialise();
  for (const uint64_t id : wanted) tell(id, question);
  const Roster::Round answers = roster_.wait_round(wanted, round, options_.answer_seconds);
  for (const uint64_t id : answers.others) {
    roster_.fails(id, "did not answer within " + std::to_string(int(options_.answer_seconds)) +
                          " seconds; left out of the group");
  }
  if (carrier_ && group_ == answers.answered) return;
  form(answers.answered);
}

void Sender::form(Roster::Ids ids) {
  drop_group();
  // A second time without those who did not manage.
  if (!ids.empty() && !try_to_form(&ids) && !ids.empty()) (void)try_to_form(&ids);
}

// The carrier knows best. Else those who do not say that they have entered; and where all say so,
// all of them: that group is not there.
Roster::Ids Sender::who_failed(const Roster::Ids& ids, uint64_t round,
                               const std::vector<unsigned>& missing) {
  Roster::Ids failed;
  for (const unsigned rank : missing) {
    if (rank != 0 && rank <= ids.size()) failed.push_back(ids[rank - 1]);
  }
  if (!failed.empty()) return failed;
  const Roster::Round entered = roster_.wait_round(ids, round, options_.answer_seconds);
  return entered.others.empty() ? entered.answered : entered.others;
}

// False: `ids` are those who are not to blame.
bool Sender::try_to_form(Roster::Ids* ids) {
  const unsigned size = unsigned(ids->size()) + 1;
  const double timeout = std::min(options_.timeout_seconds, kMostFormSeconds);
  const GroupOptions how{size, host_of(options_, hub_.address()), Secret(options_.secret)};
  const uint64_t round = roster_.begin_round();
  Result<std::unique_ptr<Gathering>> gathering = backend_->open(how, timeout);
  Result<std::unique_ptr<Carrier>> carrier = gathering.status();
  if (gathering.ok()) {
    for (size_t i = 0; i < ids->size(); ++i) {
      tell((*ids)[i], Message::of({{"epoch", round},
                                   {"backend", backend_->name()},
                                   {"ticket", (*gathering)->ticket()},
                                   {"rank", i + 1},
                                   {"size", size}})
                          .serialise());
    }
    carrier = (*gathering)->finish(timeout);
  }
  if (!carrier.ok()) {
    log_event(LogLevel::kWarning, "ship.no_group",
              {{"carrier", backend_->name()}, {"size", size}, {"error", carrier.status()}});
    // Without an offer nobody is to blame.
    if (!gathering.ok()) return true;
    const Roster::Ids blamed = who_failed(*ids, round, (*gathering)->missing());
    for (const uint64_t id : blamed) roster_.strike(id);
    std::erase_if(*ids, [&](uint64_t id) {
      return std::find(blamed.begin(), blamed.end(), id) != blamed.end();
    });
    return false;
  }
  {
    const std::lock_guard lock(carrier_mutex_);
    carrier_ = std::move(*carrier);
  }
  group_ = *ids;
  roster_.set_group(group_);
  queue_.set_limit(std::min(options_.buffer_bytes, roster_.least_buffer(group_)));
  const std::lock_guard lock(sent_mutex_);
  sent_.carrier = carrier_->name();
  ++sent_.epoch;
  log_event(LogLevel::kInfo, "ship.group",
            {{"carrier", sent_.carrier}, {"epoch", sent_.epoch}, {"size", size}});
  return true;
}

void Sender::drop_group() {
  // It ends without the mutex: one that is Python's wants the GIL for it.
  std::unique_ptr<Carrier> old;
  {
    const std::lock_guard lock(carrier_mutex_);
    old = std::move(carrier_);
  }
  old.reset();
  group_.clear();
  roster_.set_group({});
}

// Who is known to be at fault has to join again; it finds what it missed in the store.
void Sender::lose_group(const Status& status) {
  const Roster::Ids before = group_;
  for (const unsigned rank : carrier_->lost()) {
    if (rank == 0 || rank > before.size()) continue;
    const uint64_t id = before[rank - 1];
    roster_.fails(id, "rank " + std::to_string(rank) + " was lost: " + status.message());
    hub_.dismiss(id, "lost by the group: " + status.message());
    roster_.left(id, status.message());
  }
  log_event(LogLevel::kWarning, "ship.group_lost", {{"error", status}});
  drop_group();
  const Roster::Ids present = roster_.pushed();
  Roster::Ids rest;
  std::set_intersection(before.begin(), before.end(), present.begin(), present.end(),
                        std::back_inserter(rest));
  ensure_group(rest);
}

void Sender::send(Bucket& bucket) {
  if (begin_version(bucket.of)) ensure_group(roster_.pushed());
  if (!carrier_) return;
  // The bucket was filled before the group was known: some may take less at once.
  const uint64_t limit = std::min(options_.buffer_bytes, roster_.least_buffer(group_));
  Slice slice{std::span(bucket.bytes).first(0), {}};
  size_t begin = 0, at = 0;
  for (const BucketPiece& piece : bucket.pieces) {
    BucketPiece rest = piece;
    do {
      const uint64_t count = std::min(rest.length, limit - (at - begin));
      slice.pieces.push_back({rest.name, rest.object_bytes, rest.offset, count});
      at += size_t(count);
      rest.offset += count;
      rest.length -= count;
      slice.bytes = std::span(bucket.bytes).subspan(begin, at - begin);
      if (at - begin < limit) continue;
      if (!send_slice(slice)) return;
      slice.pieces.clear();
      begin = at;
    } while (rest.length != 0);
  }
  if (!slice.pieces.empty()) {
    slice.bytes = std::span(bucket.bytes).subspan(begin, at - begin);
    (void)send_slice(slice);
  }
}

bool Sender::send_slice(const Slice& slice) {
  for (unsigned attempt = 0; attempt < 2 && carrier_ && !stopping_; ++attempt) {
    const double begin = sender_clock();
    const std::string word = Message::of({{"bucket", ++bucket_number_},
                                          {"bytes", slice.bytes.size()},
                                          {"seconds", uint64_t(options_.timeout_seconds)},
                                          {"pieces", pieces_json(slice.pieces)}})
                                 .serialise();
    for (const uint64_t id : group_) tell(id, word);
    Status status;
    if (!slice.bytes.empty()) {
      status = carrier_->broadcast(0, slice.bytes, options_.timeout_seconds);
    }
    if (status.ok()) {
      for (const uint64_t id : group_) roster_.sent(id, slice.bytes.size());
      const std::lock_guard lock(sent_mutex_);
      sent_.bytes += slice.bytes.size();
      if (!sent_.begin) sent_.begin = begin;
      sent_.end = sender_clock();
      return true;
    }
    if (!stopping_) lose_group(status);
  }
  return false;
}

void Sender::tell_commit(const CommitWord& word) {
  if (!begun_ || begun_->version != word.version) (void)begin_version({word.version});
  auto parts = nlohmann::json::array();
  for (const PartRef& part : word.parts) {
    parts.push_back({part.name, part.size_bytes, part.sha256.hex()});
  }
  nlohmann::json json = {{"commit", word.version}, {"run", word.run}, {"parts", std::move(parts)}};
  std::string message = Message(json).serialise();
  if (message.size() > kMaxHeadBytes) {  // what was sent is then read again
    json["parts"] = nlohmann::json::array();
    message = Message(json).serialise();
  }
  roster_.commit_version();
  for (const uint64_t id : roster_.followers()) tell(id, message);
}

}  // namespace deltawire
