//! What stands between clients and a server.
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// Serves each connection to a port, which it returns, in a thread of its own. It ends with the test.
pub fn front(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    port
}

/// A connection to the server on a port, whose answers go to a client.
pub fn behind(client: &TcpStream, server: u16) -> TcpStream {
    let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    server
}
