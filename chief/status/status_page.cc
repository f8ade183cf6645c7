#include "chief/status/status_page.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/web/page_policy.h"

namespace muster::chief {
namespace {

constexpr int kMaxReaders = 16;

// Returns the text of the element that is between `begin` and `end`.
std::string_view TextBetween(std::string_view page, std::string_view begin, std::string_view end) {
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find(end, from) - from);
}

// Returns an id above those of earlier chiefs of the run, unless the clock was set back. A reader
// with an unknown id receives the whole state.
uint64_t FirstId() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) *
         1000;
}

// Returns the value of the HTTP header Content-Security-Policy for the HTML text `page`. The policy
// permits only the script and the style in `page` (by their hashes), images in data URLs, and
// connections to the server of the page.
std::string PolicyOf(const std::string& page) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      web::SourceOfText(TextBetween(page, "<script>", "</script>")),
      web::SourceOfText(TextBetween(page, "<style>", "</style>")));
}

}  // namespace

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
