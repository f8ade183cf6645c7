#include "chief/status/status_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <chrono>
#include <thread>
#include <utility>

namespace muster::chief {
namespace {

constexpr int kMaxReaders = 16;

// Returns the SHA-256 of the text between `begin` and `end`, as base64.
std::string HashBetween(const std::string& page, std::string_view begin, std::string_view end) {
  const size_t from = page.find(begin) + begin.size();
  const size_t size = page.find(end, from) - from;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(page.data() + from, size, digest, &length, EVP_sha256(), nullptr);
  unsigned char text[2 * EVP_MAX_MD_SIZE];
  const int written = EVP_EncodeBlock(text, digest, static_cast<int>(length));
  return {reinterpret_cast<char*>(text), static_cast<size_t>(written)};
}

// Returns an id above those of earlier chiefs of the run, unless the clock was set back. A reader
// with an unknown id receives the whole state.
uint64_t FirstId() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) *
         1000;
}

}  // namespace

std::string PolicyOf(const std::string& page) {
  return fmt::format(
      "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      HashBetween(page, "<script>", "</script>"), HashBetween(page, "<style>", "</style>"));
}

absl::StatusOr<std::unique_ptr<StatusPage>> StatusPage::Bind(web::HttpOptions options) {
  options.max_streams = kMaxReaders;
  MUSTER_ASSIGN_OR_RETURN(auto server, web::HttpServer::Make(options));
  return std::unique_ptr<StatusPage>(new StatusPage(std::move(server)));
}

void StatusPage::Start(PageFeed::Source source, const RunWatch& watch) {
  feed_ = std::make_unique<PageFeed>(std::move(source), watch, FirstId());
  const std::string policy = PolicyOf(kStatusPage);
  server_->Get("/", [policy](const web::HttpRequest&) {
    web::HttpResponse response;
    response.type = "text/html; charset=utf-8";
    response.body = kStatusPage;
    response.headers = {{"Content-Security-Policy", policy}};
    return response;
  });
  PageFeed* feed = feed_.get();
  server_->Get("/status.json", [feed](const web::HttpRequest&) {
    web::HttpResponse response;
    response.type = "application/json";
    response.body = Dump(feed->Whole()) + "\n";
    return response;
  });
  server_->Events("/events", [feed](uint64_t after) -> std::optional<web::HttpEvent> {
    std::optional<PageMessage> message = feed->Next(after);
    if (!message) return std::nullopt;
    return web::HttpEvent{message->id, std::move(message->text)};
  });
  server_->Start();
}

void StatusPage::ShowEnd() {
  if (feed_ == nullptr || !feed_->AskAgain()) return;
  // Twice the interval at which the streams poll the feed.
  std::this_thread::sleep_for(2 * web::HttpOptions().event_interval);
}

}  // namespace muster::chief
