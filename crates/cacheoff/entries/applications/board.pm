# The board of the contest in Perl, in the workers of nginx: SQLite and nothing else. The same bytes as board.py.
package board;

use strict;
use warnings;
use DBI;
use nginx;

use constant HTML           => 'text/html; charset=utf-8';
use constant THREADS_A_PAGE => 30;
use constant POSTS_SHOWN    => 20;

my %REASONS = (
    400 => '400 Bad Request',
    403 => '403 Forbidden',
    404 => '404 Not Found',
    405 => '405 Method Not Allowed',
);

# The connection of this worker, which stays open and keeps its prepared statements. Texts are bytes in UTF-8.
my $database;

sub database {
    return $database if $database;
    $database = DBI->connect("dbi:SQLite:dbname=$ENV{BOARD_DATABASE}", '', '',
        { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
    $database->sqlite_busy_timeout(5000);
    $database->do('PRAGMA synchronous = NORMAL');
    return $database;
}

sub rows {
    my ($query, @values) = @_;
    my $statement = database()->prepare_cached($query);
    $statement->execute(@values);
    return $statement->fetchall_arrayref;
}

sub escaped {
    my ($text) = @_;
    $text =~ s/&/&amp;/g;
    $text =~ s/</&lt;/g;
    $text =~ s/>/&gt;/g;
    return $text;
}

sub unescaped {
    my ($text) = @_;
    $text =~ tr/+/ /;
    $text =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge;
    return $text;
}

sub user {
    my ($r) = @_;
    for my $pair (split /;\s*/, $r->header_in('Cookie') // '') {
        next unless $pair =~ /^session=(.+)$/;
        return rows('SELECT id, name FROM users WHERE token = ?', $1)->[0];
    }
    return undef;
}

sub answer {
    my ($r, $status, $media, $body, $location) = @_;
    $r->status($status);
    $r->header_out('Cache-Control', 'no-store');
    $r->header_out('Content-Length', length $body);
    $r->header_out('Location', $location) if defined $location;
    $r->send_http_header($media);
    $r->print($body) unless $r->header_only || $body eq '';
    return OK;
}

sub error {
    my ($r, $status) = @_;
    return answer($r, $status, 'text/plain', "$REASONS{$status}\n");
}

sub page {
    my ($r, $title, $user, $body) = @_;
    my $who = $user ? 'Signed in as ' . escaped($user->[1]) : 'Not signed in';
    $title = escaped($title);
    return answer($r, 200, HTML,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>$title</title></head>\n<body>\n"
            . "<p>$who</p>\n<h1>$title</h1>\n$body</body></html>\n");
}

sub list {
    my ($r, $number) = @_;
    my $user = user($r);
    my $rows = rows(
        'SELECT threads.id, subject, name, posts FROM threads JOIN users ON users.id = threads.user '
            . 'WHERE threads.id > ? ORDER BY threads.id LIMIT ?',
        $number * THREADS_A_PAGE, THREADS_A_PAGE);
    return error($r, 404) unless @$rows;
    my $items = join '', map {
        my ($thread, $subject, $name, $posts) = @$_;
        "<li><a href=\"/thread/$thread\">" . escaped($subject) . '</a> by ' . escaped($name) . ", $posts posts</li>\n"
    } @$rows;
    return page($r, "Board, page $number", $user, "<ul>\n$items</ul>\n");
}

sub thread {
    my ($r, $number) = @_;
    my $user = user($r);
    my $found = rows('SELECT subject FROM threads WHERE id = ?', $number)->[0];
    return error($r, 404) unless $found;
    my $posts = rows(
        'SELECT name, text FROM posts JOIN users ON users.id = posts.user '
            . 'WHERE thread = ? ORDER BY posts.id DESC LIMIT ?',
        $number, POSTS_SHOWN);
    my $items = join '',
        map { '<div><b>' . escaped($_->[0]) . '</b><p>' . escaped($_->[1]) . "</p></div>\n" } reverse @$posts;
    my $form = "<form method=\"post\" action=\"/thread/$number\"><textarea name=\"text\"></textarea><button>Post</button></form>\n";
    return page($r, $found->[0], $user, $items . $form);
}

sub post {
    my ($r, $number) = @_;
    my $user = user($r);
    return error($r, 403) unless $user;
    my ($text) = map { /^text=(.*)$/s ? unescaped($1) : () } split /&/, $r->request_body // '';
    return error($r, 400) unless defined $text && $text ne '';
    my $database = database();
    $database->do('BEGIN IMMEDIATE');
    my $exists = eval {
        my $count = $database->prepare_cached('UPDATE threads SET posts = posts + 1 WHERE id = ?');
        my $changed = $count->execute($number) > 0;
        $database->prepare_cached('INSERT INTO posts (thread, user, text) VALUES (?, ?, ?)')
            ->execute($number, $user->[0], $text) if $changed;
        $changed ? 1 : 0;
    };
    if (!defined $exists) {
        my $failure = $@;
        $database->do('ROLLBACK');
        die $failure;
    }
    $database->do('COMMIT');
    return $exists ? answer($r, 303, HTML, '', "/thread/$number") : error($r, 404);
}

sub handler {
    my ($r) = @_;
    my $path = $r->uri;
    return answer($r, 200, 'text/plain', "Hello, World!\n") if $path eq '/hello';
    my ($name, $number) = ($path eq '/' ? '/list/0' : $path) =~ m{^/(list|thread)/([0-9]{1,9})\z};
    return error($r, 404) unless defined $name;
    $number += 0;
    my $method = $r->request_method;
    if ($method eq 'POST' && $name eq 'thread') {
        # The body is there when the handler is called again.
        return OK if $r->has_request_body(sub { post($_[0], $number) });
        return error($r, 400);
    }
    return error($r, 405) unless $method eq 'GET' || $method eq 'HEAD';
    return $name eq 'list' ? list($r, $number) : thread($r, $number);
}

1;
