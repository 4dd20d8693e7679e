<?php
// The board of the contest in PHP: SQLite and nothing else. The same bytes as board.py.

const HTML = 'text/html; charset=utf-8';
const THREADS_A_PAGE = 30;
const POSTS_SHOWN = 20;
const REASONS = [
    400 => '400 Bad Request', 403 => '403 Forbidden', 404 => '404 Not Found', 405 => '405 Method Not Allowed',
];

function database(): PDO
{
    static $database = null;
    if ($database === null) {
        // The connection stays open from one request to the next.
        $database = new PDO('sqlite:' . getenv('BOARD_DATABASE'), null, null, [
            PDO::ATTR_PERSISTENT => true,
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_TIMEOUT => 5,
        ]);
        $database->exec('PRAGMA synchronous = NORMAL');
    }
    return $database;
}

function rows(string $query, array $values): array
{
    $statement = database()->prepare($query);
    foreach ($values as $place => $value) {
        $statement->bindValue($place + 1, $value, is_int($value) ? PDO::PARAM_INT : PDO::PARAM_STR);
    }
    $statement->execute();
    return $statement->fetchAll(PDO::FETCH_NUM);
}

function escaped(string $text): string
{
    return str_replace(['&', '<', '>'], ['&amp;', '&lt;', '&gt;'], $text);
}

function user(): ?array
{
    $token = $_COOKIE['session'] ?? '';
    if (!is_string($token) || $token === '') {
        return null;
    }
    return rows('SELECT id, name FROM users WHERE token = ?', [$token])[0] ?? null;
}

function answer(int $status, string $media, string $body, ?string $location = null): void
{
    http_response_code($status);
    header('Content-Type: ' . $media);
    header('Cache-Control: no-store');
    header('Content-Length: ' . strlen($body));
    if ($location !== null) {
        header('Location: ' . $location, true, $status);
    }
    echo $body;
}

function error(int $status): void
{
    answer($status, 'text/plain', REASONS[$status] . "\n");
}

function page(string $title, ?array $user, string $body): void
{
    $who = $user ? 'Signed in as ' . escaped($user[1]) : 'Not signed in';
    $title = escaped($title);
    answer(200, HTML, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>$title</title></head>\n<body>\n"
        . "<p>$who</p>\n<h1>$title</h1>\n$body</body></html>\n");
}

function list_page(int $number, ?array $user): void
{
    $rows = rows('SELECT threads.id, subject, name, posts FROM threads JOIN users ON users.id = threads.user '
        . 'WHERE threads.id > ? ORDER BY threads.id LIMIT ?', [$number * THREADS_A_PAGE, THREADS_A_PAGE]);
    if (!$rows) {
        error(404);
        return;
    }
    $items = '';
    foreach ($rows as [$thread, $subject, $name, $posts]) {
        $items .= "<li><a href=\"/thread/$thread\">" . escaped($subject) . '</a> by ' . escaped($name) . ", $posts posts</li>\n";
    }
    page("Board, page $number", $user, "<ul>\n$items</ul>\n");
}

function thread_page(int $number, ?array $user): void
{
    $found = rows('SELECT subject FROM threads WHERE id = ?', [$number]);
    if (!$found) {
        error(404);
        return;
    }
    $posts = rows('SELECT name, text FROM posts JOIN users ON users.id = posts.user '
        . 'WHERE thread = ? ORDER BY posts.id DESC LIMIT ?', [$number, POSTS_SHOWN]);
    $items = '';
    foreach (array_reverse($posts) as [$name, $text]) {
        $items .= '<div><b>' . escaped($name) . '</b><p>' . escaped($text) . "</p></div>\n";
    }
    $form = "<form method=\"post\" action=\"/thread/$number\"><textarea name=\"text\"></textarea><button>Post</button></form>\n";
    page($found[0][0], $user, $items . $form);
}

function post(int $number, ?array $user): void
{
    if (!$user) {
        error(403);
        return;
    }
    $text = $_POST['text'] ?? '';
    if (!is_string($text) || $text === '') {
        error(400);
        return;
    }
    $database = database();
    $database->exec('BEGIN IMMEDIATE');
    try {
        $count = $database->prepare('UPDATE threads SET posts = posts + 1 WHERE id = ?');
        $count->bindValue(1, $number, PDO::PARAM_INT);
        $count->execute();
        $exists = $count->rowCount() > 0;
        if ($exists) {
            $insert = $database->prepare('INSERT INTO posts (thread, user, text) VALUES (?, ?, ?)');
            $insert->bindValue(1, $number, PDO::PARAM_INT);
            $insert->bindValue(2, (int) $user[0], PDO::PARAM_INT);
            $insert->bindValue(3, $text, PDO::PARAM_STR);
            $insert->execute();
        }
    } catch (Throwable $failure) {
        $database->exec('ROLLBACK');
        throw $failure;
    }
    $database->exec('COMMIT');
    if ($exists) {
        answer(303, HTML, '', "/thread/$number");
    } else {
        error(404);
    }
}

$path = strtok($_SERVER['REQUEST_URI'], '?');
$method = $_SERVER['REQUEST_METHOD'];
if ($path === '/hello') {
    answer(200, 'text/plain', "Hello, World!\n");
} elseif (!preg_match('~^/(list|thread)/([0-9]{1,9})$~D', $path === '/' ? '/list/0' : $path, $parts)) {
    error(404);
} elseif ($method === 'POST' && $parts[1] === 'thread') {
    post((int) $parts[2], user());
} elseif ($method !== 'GET' && $method !== 'HEAD') {
    error(405);
} elseif ($parts[1] === 'list') {
    list_page((int) $parts[2], user());
} else {
    thread_page((int) $parts[2], user());
}
