# The board of the contest in Ruby, as a Rack application: SQLite and nothing else. The same bytes as board.py.

require "sqlite3"
require "uri"

class Board
  HTML = "text/html; charset=utf-8"
  THREADS_A_PAGE = 30
  POSTS_SHOWN = 20
  REASONS = {
    400 => "400 Bad Request", 403 => "403 Forbidden", 404 => "404 Not Found", 405 => "405 Method Not Allowed",
  }.freeze
  ESCAPES = { "&" => "&amp;", "<" => "&lt;", ">" => "&gt;" }.freeze

  QUERIES = {
    user: "SELECT id, name FROM users WHERE token = ?",
    list: "SELECT threads.id, subject, name, posts FROM threads JOIN users ON users.id = threads.user " \
          "WHERE threads.id > ? ORDER BY threads.id LIMIT ?",
    thread: "SELECT subject FROM threads WHERE id = ?",
    posts: "SELECT name, text FROM posts JOIN users ON users.id = posts.user " \
           "WHERE thread = ? ORDER BY posts.id DESC LIMIT ?",
    count: "UPDATE threads SET posts = posts + 1 WHERE id = ?",
    insert: "INSERT INTO posts (thread, user, text) VALUES (?, ?, ?)",
  }.freeze

  # The connection of a thread, which stays open.
  def database
    Thread.current[:board_database] ||= SQLite3::Database.new(ENV.fetch("BOARD_DATABASE")).tap do |database|
      database.busy_timeout = 5000
      database.execute("PRAGMA synchronous = NORMAL")
    end
  end

  # The rows of a prepared statement, which is kept.
  def rows(name, *values)
    statements = (Thread.current[:board_statements] ||= {})
    statement = (statements[name] ||= database.prepare(QUERIES.fetch(name)))
    statement.reset!
    found = statement.execute(*values).to_a
    # A statement that stays at its last row would keep an old state of the database.
    statement.reset!
    found
  end

  def escaped(text)
    text.gsub(/[&<>]/, ESCAPES)
  end

  def user(env)
    (env["HTTP_COOKIE"] || "").split(/;\s*/).each do |pair|
      name, value = pair.split("=", 2)
      next unless name == "session" && value && !value.empty?

      # A string of bytes would be bound as a blob, which equals no text.
      return rows(:user, value.dup.force_encoding(Encoding::UTF_8)).first
    end
    nil
  end

  def answer(status, media, body, location = nil)
    fields = { "Content-Type" => media, "Cache-Control" => "no-store", "Content-Length" => body.bytesize.to_s }
    fields["Location"] = location if location
    [status, fields, [body]]
  end

  def error(status)
    answer(status, "text/plain", "#{REASONS.fetch(status)}\n")
  end

  def page(title, user, body)
    who = user ? "Signed in as #{escaped(user[1])}" : "Not signed in"
    title = escaped(title)
    answer(200, HTML, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>#{title}</title></head>\n<body>\n" \
                      "<p>#{who}</p>\n<h1>#{title}</h1>\n#{body}</body></html>\n")
  end

  def list(number, user)
    found = rows(:list, number * THREADS_A_PAGE, THREADS_A_PAGE)
    return error(404) if found.empty?

    items = found.map do |thread, subject, name, posts|
      "<li><a href=\"/thread/#{thread}\">#{escaped(subject)}</a> by #{escaped(name)}, #{posts} posts</li>\n"
    end
    page("Board, page #{number}", user, "<ul>\n#{items.join}</ul>\n")
  end

  def thread(number, user)
    found = rows(:thread, number).first
    return error(404) unless found

    posts = rows(:posts, number, POSTS_SHOWN).reverse
    items = posts.map { |name, text| "<div><b>#{escaped(name)}</b><p>#{escaped(text)}</p></div>\n" }
    form = "<form method=\"post\" action=\"/thread/#{number}\"><textarea name=\"text\"></textarea><button>Post</button></form>\n"
    page(found[0], user, items.join + form)
  end

  def post(number, user, body)
    return error(403) unless user

    text = URI.decode_www_form(body).assoc("text")&.last
    return error(400) if text.nil? || text.empty?

    database.execute("BEGIN IMMEDIATE")
    begin
      rows(:count, number)
      exists = database.changes.positive?
      rows(:insert, number, user[0], text) if exists
    rescue StandardError
      database.execute("ROLLBACK")
      raise
    end
    database.execute("COMMIT")
    exists ? answer(303, HTML, "", "/thread/#{number}") : error(404)
  end

  def call(env)
    path = env["PATH_INFO"]
    return answer(200, "text/plain", "Hello, World!\n") if path == "/hello"

    name, number = (path == "/" ? "/list/0" : path).match(%r{\A/(list|thread)/([0-9]{1,9})\z})&.captures
    return error(404) unless name

    method = env["REQUEST_METHOD"]
    if method == "POST" && name == "thread"
      body = env["rack.input"].read.force_encoding(Encoding::UTF_8)
      return post(number.to_i, user(env), body)
    end
    return error(405) unless %w[GET HEAD].include?(method)

    name == "list" ? list(number.to_i, user(env)) : thread(number.to_i, user(env))
  end
end

run Board.new
