#include "shard/messages.h"

#include "tensor/text.h"

namespace deltawire::shard {
namespace {

// "dwshard2" and a letter for each message: another one at this place is a stream out of step.
constexpr uint64_t kMagic = 0x3264726168737764;

class Writer {
 public:
  Writer(size_t size, uint8_t kind) : bytes_(size) { number(kMagic ^ kind); }
  Writer& number(uint64_t value) {
    store_le(bytes_.data() + at_, value);
    at_ += sizeof value;
    return *this;
  }
  Writer& copy(Bytes bytes) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + ptrdiff_t(at_));
    at_ += bytes.size();
    return *this;
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}
  bool begins(size_t size, uint8_t kind) {
    return bytes_.size() == size && number() == (kMagic ^ kind);
  }
  uint64_t number() {
    at_ += sizeof(uint64_t);
    return load_le<uint64_t>(bytes_.data() + at_ - sizeof(uint64_t));
  }
  template <size_t kSize>
  std::array<uint8_t, kSize> copy() {
    std::array<uint8_t, kSize> out;
    std::copy_n(bytes_.begin() + ptrdiff_t(at_), kSize, out.begin());
    at_ += kSize;
    return out;
  }
  Bytes rest() const { return bytes_.subspan(at_); }

 private:
  Bytes bytes_;
  size_t at_ = 0;
};

Status out_of_step(const char* what) {
  return corruption(std::string("shards: a peer sends something else than its ") + what);
}

}  // namespace

std::vector<uint8_t> pack(const Hello& hello) {
  Writer writer(Hello::kBytes, 'h');
  writer.copy(hello.plan)
      .number(hello.version)
      .number(hello.state)
      .number(hello.slice_bytes)
      .number(hello.bucket_bytes);
  for (const uint64_t base : hello.bases) writer.number(base);
  return writer.take();
}

Result<Hello> parse_hello(Bytes bytes) {
  Reader reader(bytes);
  if (!reader.begins(Hello::kBytes, 'h')) return out_of_step("hello");
  Hello hello;
  hello.plan = reader.copy<16>();
  hello.version = reader.number();
  hello.state = reader.number();
  hello.slice_bytes = reader.number();
  hello.bucket_bytes = reader.number();
  for (uint64_t& base : hello.bases) base = reader.number();
  return hello;
}

std::vector<uint8_t> pack(const RoundHead& head) {
  return Writer(RoundHead::kBytes, 'r')
      .number(head.round)
      .number(head.body_bytes)
      .number(head.num_records)
      .number(head.checksum)
      .number(uint64_t{head.last} | uint64_t{head.failed} << 1)
      .take();
}

Result<RoundHead> parse_round_head(Bytes bytes) {
  Reader reader(bytes);
  if (!reader.begins(RoundHead::kBytes, 'r')) return out_of_step("round");
  RoundHead head;
  head.round = reader.number();
  head.body_bytes = reader.number();
  head.num_records = reader.number();
  head.checksum = reader.number();
  const uint64_t flags = reader.number();
  head.last = (flags & 1) != 0;
  head.failed = (flags & 2) != 0;
  return head;
}

std::vector<uint8_t> pack(const Verdict& verdict) {
  constexpr size_t kRoom = Verdict::kBytes - 4 * sizeof(uint64_t);
  std::string words = verdict.words.substr(0, kRoom);
  while (!is_utf8(words)) words.pop_back();
  return Writer(Verdict::kBytes, 'v')
      .number(uint64_t(verdict.code))
      .number(verdict.count)
      .number(words.size())
      .copy({reinterpret_cast<const uint8_t*>(words.data()), words.size()})
      .take();
}

Result<Verdict> parse_verdict(Bytes bytes) {
  Reader reader(bytes);
  if (!reader.begins(Verdict::kBytes, 'v')) return out_of_step("verdict");
  const uint64_t code = reader.number();
  Verdict verdict;
  verdict.count = reader.number();
  const uint64_t size = reader.number();
  const Bytes words = reader.rest();
  if (code > uint64_t(Code::kInternal) || code == 1 || size > words.size()) {
    return out_of_step("verdict");
  }
  verdict.code = Code(code);
  verdict.words = escape_controls({reinterpret_cast<const char*>(words.data()), size});
  return verdict;
}

void append(const RecordHead& head, std::vector<uint8_t>* body) {
  uint8_t bytes[RecordHead::kBytes];
  store_le(bytes, head.item);
  store_le(bytes + 8, head.num_changed);
  store_le(bytes + 16, head.payload_bytes);
  std::copy(head.codec.begin(), head.codec.end(), bytes + 24);
  std::copy(head.digest.begin(), head.digest.end(), bytes + 40);
  body->insert(body->end(), std::begin(bytes), std::end(bytes));
}

RecordHead parse_record_head(Bytes bytes) {
  RecordHead head;
  head.item = load_le<uint64_t>(bytes.data());
  head.num_changed = load_le<uint64_t>(bytes.data() + 8);
  head.payload_bytes = load_le<uint64_t>(bytes.data() + 16);
  std::copy_n(bytes.begin() + 24, head.codec.size(), head.codec.begin());
  std::copy_n(bytes.begin() + 40, head.digest.size(), head.digest.begin());
  return head;
}

}  // namespace deltawire::shard
