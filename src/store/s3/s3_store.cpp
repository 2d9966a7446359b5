#include "store/s3_store.h"

#include <optional>

#include "base/bytes.h"
#include "base/text.h"
#include "store/ranged_store.h"
#include "store/s3/bucket.h"
#include "store/s3/client.h"

namespace deltawire {
namespace s3 {
namespace {

constexpr char kSha256Header[] = "x-amz-meta-deltawire-sha256";

class S3Store final : public RangedStore {
 public:
  S3Store(std::unique_ptr<Client> client, std::string prefix, const StoreOptions& options)
      : RangedStore(options),
        client_(std::move(client)),
        prefix_(prefix.empty() ? "" : prefix + "/") {}

  std::string url() const override {
    std::string url = "s3://" + client_->bucket() + "/" + prefix_;
    url.pop_back();
    return url;
  }

  Result<Capabilities> capabilities() override {
    const std::lock_guard lock(capabilities_mutex_);
    if (!capabilities_.has_value()) {
      DW_ASSIGN_OR_RETURN(bool conditional,
                          located(has_conditional_put(client_.get(), prefix_), url()));
      capabilities_ = Capabilities{conditional};
    }
    return *capabilities_;
  }

  Status put(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    if (body.size() <= piece_bytes_) {
      const Slots::Slot slot(&slots_);
      return at(name, put_whole(name, body));
    }
    const Pieces pieces =
        Pieces::cut(body.size(), connections_, kMinUploadPiece, piece_bytes_, kMaxUploadPieces);
    return at(name, upload_in_pieces(client_.get(), &slots_, key(name), body, pieces, connections_,
                                     retries_));
  }

  Status put_if_absent(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    // A server that overlooks the condition would overwrite what is there.
    DW_ASSIGN_OR_RETURN(const Capabilities can, capabilities());
    if (!can.put_if_absent) {
      return at(name, unsupported("the server has no conditional PUT (If-None-Match)"));
    }
    return at(name, put_whole_if_absent(name, body));
  }

  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    Result<std::string> text = get_whole(name, max_bytes);
    if (!text.ok()) return at(name, std::move(text).status());
    return text;
  }

  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(check_object_prefix(prefix));
    limit = std::min(limit, kMaxListed);
    return located(list_objects(client_.get(), prefix_, prefix, start_after, limit), url());
  }

  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    Result<HttpAnswer> answer = client_->send({.method = "DELETE", .key = key(name)});
    if (!answer.ok()) return at(name, std::move(answer).status());
    const bool no_object = answer->status == 404 && parse_error(answer->text).code == "NoSuchKey";
    if (answer->ok() || no_object) return {};
    return at(name, client_->failure(*answer));
  }

  // Every answer has the time, whether there is an object of that name or not.
  Result<int64_t> clock() override {
    DW_ASSIGN_OR_RETURN(HttpAnswer answer,
                        located(client_->send({.method = "HEAD", .key = prefix_}), url()));
    if (answer.status >= 500) return client_->failure(answer).at(url());
    const int64_t now = parse_http_date(answer.header("date"));
    return now > 0 ? Result<int64_t>(now) : Store::clock();
  }

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Result<HttpAnswer> send_whole(std::string_view name, const Body& body, bool if_absent) {
    Request request{.method = "PUT", .key = key(name), .body = {&body, 0, body.size()}};
    DW_ASSIGN_OR_RETURN(request.body_sha256, sha256_of(request.body));
    request.headers = {{kSha256Header, request.body_sha256}};
    if (if_absent) request.headers.emplace_back("if-none-match", "*");
    request.may_resend = !if_absent;  // else it could find what it put itself
    request.moved_bytes = body.size();
    return client_->send(request);
  }

  Status put_whole(std::string_view name, const Body& body) {
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer, send_whole(name, body, false));
    return answer.ok() ? Status() : client_->failure(answer);
  }

  Status put_whole_if_absent(std::string_view name, const Body& body) {
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer, send_whole(name, body, true));
    if (answer.ok()) return {};
    if (answer.status == 412) return conflict("is already there");
    // 409: another write or removal of the name was going on. Whether that one won is seen now.
    if (answer.status == 409 && head(name).ok()) return conflict("is already there");
    return client_->failure(answer);
  }

  Result<HttpAnswer> head(std::string_view name) override {
    return client_->send_ok({.method = "HEAD", .key = key(name)});
  }

  RangeSource source_of(std::string_view name) override {
    RangeSource source;
    source.send = [this, key = key(name)](RangeSource::Headers headers, uint64_t length,
                                          RangeSource::OnBytes on_bytes,
                                          const std::atomic<bool>* cancelled) {
      return client_->send({.key = key,
                            .headers = std::move(headers),
                            .moved_bytes = length,
                            .on_bytes = std::move(on_bytes),
                            .cancelled = cancelled});
    };
    source.failure = [this](const HttpAnswer& answer) { return client_->failure(answer); };
    source.quotes_etag = false;
    return source;
  }

  Result<std::string> get_whole(std::string_view name, uint64_t max_bytes) {
    std::string text;
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                        client_->send_ok({.key = key(name),
                                          .moved_bytes = std::min(max_bytes, piece_bytes_),
                                          .on_bytes = take_text(max_bytes, &text)}));
    const std::string_view expected = answer.header(kSha256Header);
    if (!expected.empty()) {
      const MemoryBody body(text);
      DW_ASSIGN_OR_RETURN(const std::string got, sha256_of({&body, 0, body.size()}));
      if (got != expected) {
        return corruption("sha-256 expected " + std::string(expected.substr(0, 64)) + ", got " +
                          got);
      }
    }
    return text;
  }

  const std::unique_ptr<Client> client_;
  const std::string prefix_;  // empty or ending in '/'
  std::mutex capabilities_mutex_;
  std::optional<Capabilities> capabilities_;
};

}  // namespace
}  // namespace s3

Result<std::shared_ptr<Store>> open_s3_store(const std::string& bucket, const std::string& prefix,
                                             const StoreOptions& options) {
  if (!prefix.empty()) DW_RETURN_IF_ERROR(check_object_name(prefix));
  if (options.multipart_bytes == 0) return invalid_argument("pieces must be larger than 0 bytes");
  Result<std::unique_ptr<s3::Client>> client = s3::Client::make(bucket, options);
  if (!client.ok()) return std::move(client).status().at("s3://" + bucket);
  return std::shared_ptr<Store>(
      std::make_shared<s3::S3Store>(std::move(client).value(), prefix, options));
}

}  // namespace deltawire
